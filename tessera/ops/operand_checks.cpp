#include "tessera/ops/operand_checks.h"

#include <limits>

#include "tessera/base/error.h"

namespace tessera {

void OperandChecks::floating(size_t i, std::string_view name) const {
  if (!op_.has(i)) return;
  check(is_floating(op_.type(i).dtype), ErrorKind::type,
        "{}: {} must be floating point, not {}; cast it, for example by .float()", what_, name,
        name_of(op_.type(i).dtype));
}

void OperandChecks::floating(size_t i, std::string_view name, const Shape& wanted) const {
  floating(i, name);
  shape(i, name, wanted);
}

void OperandChecks::index(size_t i, std::string_view name) const {
  if (!op_.has(i)) return;
  const DType dtype = op_.type(i).dtype;
  check(dtype == DType::i32 || dtype == DType::i64, ErrorKind::type,
        "{}: {} must be int32 or int64, not {}", what_, name, name_of(dtype));
}

void OperandChecks::index(size_t i, std::string_view name, const Shape& wanted) const {
  index(i, name);
  shape(i, name, wanted);
}

void OperandChecks::shape(size_t i, std::string_view name, const Shape& wanted) const {
  if (!op_.has(i)) return;
  check(op_.shape(i) == wanted, ErrorKind::value, "{}: {} has shape {}, wanted {}", what_, name,
        to_string(op_.shape(i)), to_string(wanted));
}

void OperandChecks::rank(size_t i, std::string_view name, size_t least, size_t most) const {
  if (!op_.has(i)) return;
  const size_t got = op_.shape(i).size();
  check(got >= least && got <= most, ErrorKind::value,
        "{}: {} has shape {}, wanted {} to {} dimensions", what_, name, to_string(op_.shape(i)),
        least, most);
}

void OperandChecks::same_type(size_t a, size_t b) const {
  if (!op_.has(a) || !op_.has(b)) return;
  check(op_.type(a).dtype == op_.type(b).dtype, ErrorKind::type,
        "{}: the types {} and {} differ; cast one of them", what_, name_of(op_.type(a).dtype),
        name_of(op_.type(b).dtype));
}

void check_sizes(const Shape& sizes, DType dtype, std::string_view what) {
  check(fits_in_memory({dtype, sizes}), ErrorKind::value, "{}: no tensor has the sizes {}", what,
        to_string(sizes));
}

int64_t saturating_product(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) {
      return std::numeric_limits<int64_t>::max();
    }
  }
  return product;
}

void check_reduction(const Attrs& attrs) {
  const int64_t reduction = attrs.integer("reduction");
  check(reduction >= 0 && reduction <= 2, ErrorKind::value,
        "reduction must be 0 (none), 1 (mean) or 2 (sum), not {}", reduction);
}

}  // namespace tessera
