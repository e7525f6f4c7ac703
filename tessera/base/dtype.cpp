#include "tessera/base/dtype.h"

#include <array>

#include "tessera/base/error.h"

namespace tessera {
namespace {

struct Row {
  std::string_view name;
  size_t bytes;
  bool floating, integral;
  DType narrow;
};

constexpr std::array<Row, 10> rows = {{
    {"f32", 4, true, false, DType::f32},
    {"f16", 2, true, false, DType::f16},
    {"bf16", 2, true, false, DType::f32},
    {"i32", 4, false, true, DType::i32},
    {"i16", 2, false, true, DType::i16},
    {"i8", 1, false, true, DType::i8},
    {"u8", 1, false, true, DType::u8},
    {"bool", 1, false, false, DType::boolean},
    {"i64", 8, false, true, DType::i32},
    {"f64", 8, true, false, DType::f32},
}};

const Row& row(DType dtype) { return rows[static_cast<size_t>(dtype)]; }

}  // namespace

size_t size_of(DType dtype) { return row(dtype).bytes; }
std::string_view name_of(DType dtype) { return row(dtype).name; }
bool is_floating(DType dtype) { return row(dtype).floating; }
bool is_integral(DType dtype) { return row(dtype).integral; }
DType narrowed(DType dtype) { return row(dtype).narrow; }

std::optional<DType> dtype_named(std::string_view name) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace tessera
