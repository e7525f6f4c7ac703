// What rules ask of their operands. Each is an Error that names the operator, the operand, what was
// wanted and what came. An operand that was left out has nothing wrong with it.
#pragma once

#include <initializer_list>
#include <string_view>

#include "tessera/ops/op_def.h"

namespace tessera {

class OperandChecks {
 public:
  OperandChecks(const OpView& op, std::string_view what) : op_(op), what_(what) {}

  void floating(size_t i, std::string_view name) const;
  void floating(size_t i, std::string_view name, const Shape& shape) const;
  // int32 or int64, which graphs hold as int32.
  void index(size_t i, std::string_view name) const;
  void index(size_t i, std::string_view name, const Shape& shape) const;
  void shape(size_t i, std::string_view name, const Shape& shape) const;
  // `least` to `most` dimensions.
  void rank(size_t i, std::string_view name, size_t least, size_t most) const;
  void same_type(size_t a, size_t b) const;

 private:
  const OpView& op_;
  std::string_view what_;
};

// Sizes that an attribute names: Error where no tensor can have them.
void check_sizes(const Shape& sizes, DType dtype, std::string_view what);

// The product, or the largest number where it is larger: no tensor has such a size.
int64_t saturating_product(std::initializer_list<int64_t> factors);

// 0 (none), 1 (mean) or 2 (sum).
void check_reduction(const Attrs& attrs);

}  // namespace tessera
