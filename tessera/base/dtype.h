// Element types. Graphs hold only types of up to 32 bits: i64 and f64 exist because PyTorch has
// them, and become i32 and f32 at the boundary (narrowed).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera {

enum class DType : uint8_t { f32, f16, bf16, i32, i16, i8, u8, boolean, i64, f64 };

size_t size_of(DType dtype);
std::string_view name_of(DType dtype);                    // "f32", "bool", ...
std::optional<DType> dtype_named(std::string_view name);  // the inverse
bool is_floating(DType dtype);
bool is_integral(DType dtype);  // bool not included
DType narrowed(DType dtype);

}  // namespace tessera
