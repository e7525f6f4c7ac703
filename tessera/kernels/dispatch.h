// From element types as values to element types as template arguments, and the sets of types that
// kernels are written for.
#pragma once

#include <cstdint>

#include "tessera/base/dtype.h"
#include "tessera/base/error.h"

namespace tessera {

enum class Types {
  floats,    // f32
  numbers,   // and i32, i16, i8, u8
  integers,  // i32, i16, i8, u8, bool
  all
};

constexpr bool is_in(Types types, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return types != Types::integers;
    case DType::i32:
    case DType::i16:
    case DType::i8:
    case DType::u8:
      return types != Types::floats;
    case DType::boolean:
      return types == Types::integers || types == Types::all;
    default:
      return false;
  }
}

// Calls use.operator()<T>() with the C++ type of `dtype`.
template <Types types, typename Use>
void dispatch(DType dtype, const Use& use) {
  TESSERA_INVARIANT(is_in(types, dtype), "no kernel for {}", name_of(dtype));
  if constexpr (is_in(types, DType::f32)) {
    if (dtype == DType::f32) return use.template operator()<float>();
  }
  if constexpr (is_in(types, DType::i32)) {
    if (dtype == DType::i32) return use.template operator()<int32_t>();
    if (dtype == DType::i16) return use.template operator()<int16_t>();
    if (dtype == DType::i8) return use.template operator()<int8_t>();
    if (dtype == DType::u8) return use.template operator()<uint8_t>();
  }
  if constexpr (is_in(types, DType::boolean)) {
    if (dtype == DType::boolean) return use.template operator()<bool>();
  }
}

}  // namespace tessera
