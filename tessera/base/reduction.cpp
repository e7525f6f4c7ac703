#include "tessera/base/reduction.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include "tessera/base/error.h"
#include "tessera/base/half.h"

namespace tessera {
namespace {

template <typename T>
T together(Reduction reduction, T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return reduction == Reduction::sum || reduction == Reduction::max ? a || b : a && b;
  } else if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    using Wide = std::common_type_t<Unsigned, unsigned>;  // small types would become signed again
    const auto x = static_cast<Wide>(static_cast<Unsigned>(a));
    const auto y = static_cast<Wide>(static_cast<Unsigned>(b));
    if (reduction == Reduction::sum) return static_cast<T>(x + y);
    if (reduction == Reduction::product) return static_cast<T>(x * y);
    return reduction == Reduction::min ? std::min(a, b) : std::max(a, b);
  } else {
    if (reduction == Reduction::sum) return a + b;
    if (reduction == Reduction::product) return a * b;
    if (a != a || b != b) return a != a ? a : b;
    return reduction == Reduction::min ? std::min(a, b) : std::max(a, b);
  }
}

template <typename T>
void combine_as(Reduction reduction, std::byte* result, const std::byte* more, size_t count) {
  auto* to = reinterpret_cast<T*>(result);
  const auto* from = reinterpret_cast<const T*>(more);
  if (reduction == Reduction::sum) {  // the one that is in a hurry
    for (size_t i = 0; i < count; ++i) to[i] = together(Reduction::sum, to[i], from[i]);
  } else {
    for (size_t i = 0; i < count; ++i) to[i] = together(reduction, to[i], from[i]);
  }
}

void combine_halves(Reduction reduction, std::byte* result, const std::byte* more, size_t count) {
  constexpr size_t block = 512;
  std::array<float, block> a{}, b{};
  const std::span to(reinterpret_cast<Half*>(result), count);
  const std::span from(reinterpret_cast<const Half*>(more), count);
  for (size_t at = 0; at < count; at += block) {
    const size_t size = std::min(block, count - at);
    widen(to.subspan(at, size), std::span(a).first(size));
    widen(from.subspan(at, size), std::span(b).first(size));
    for (size_t i = 0; i < size; ++i) a[i] = together(reduction, a[i], b[i]);
    narrow(std::span(a).first(size), to.subspan(at, size));
  }
}

void combine_brains(Reduction reduction, std::byte* result, const std::byte* more, size_t count) {
  auto* to = reinterpret_cast<uint16_t*>(result);
  const auto* from = reinterpret_cast<const uint16_t*>(more);
  const auto widened = [](uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); };
  for (size_t i = 0; i < count; ++i) {
    const float value = together(reduction, widened(to[i]), widened(from[i]));
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t even = bits >> 16 & 1;
    to[i] = value != value ? static_cast<uint16_t>(bits >> 16 | 0x40)
                           : static_cast<uint16_t>((bits + 0x7FFF + even) >> 16);
  }
}

}  // namespace

void combine(Reduction reduction, DType dtype, std::byte* result, const std::byte* more,
             size_t count) {
  switch (dtype) {
    case DType::f32:
      return combine_as<float>(reduction, result, more, count);
    case DType::f64:
      return combine_as<double>(reduction, result, more, count);
    case DType::f16:
      return combine_halves(reduction, result, more, count);
    case DType::bf16:
      return combine_brains(reduction, result, more, count);
    case DType::i64:
      return combine_as<int64_t>(reduction, result, more, count);
    case DType::i32:
      return combine_as<int32_t>(reduction, result, more, count);
    case DType::i16:
      return combine_as<int16_t>(reduction, result, more, count);
    case DType::i8:
      return combine_as<int8_t>(reduction, result, more, count);
    case DType::u8:
      return combine_as<uint8_t>(reduction, result, more, count);
    case DType::boolean:
      return combine_as<bool>(reduction, result, more, count);
  }
  TESSERA_UNREACHABLE("a type without a name");
}

}  // namespace tessera
