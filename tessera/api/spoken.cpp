#include "tessera/api/spoken.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tessera {
namespace {

// PyTorch has these names in its Python library only.
std::string_view python_name(c10::ScalarType type) {
  switch (type) {
    case c10::kByte:
      return "uint8";
    case c10::kChar:
      return "int8";
    case c10::kShort:
      return "int16";
    case c10::kInt:
      return "int32";
    case c10::kLong:
      return "int64";
    case c10::kHalf:
      return "float16";
    case c10::kFloat:
      return "float32";
    case c10::kDouble:
      return "float64";
    case c10::kBFloat16:
      return "bfloat16";
    case c10::kBool:
      return "bool";
    case c10::kComplexHalf:
      return "complex32";
    case c10::kComplexFloat:
      return "complex64";
    case c10::kComplexDouble:
      return "complex128";
    default:
      return c10::toString(type);
  }
}

}  // namespace

std::string spoken_sizes(c10::IntArrayRef sizes) {
  return fmt::format("[{}]", fmt::join(sizes.begin(), sizes.end(), ", "));
}

std::string spoken_type(c10::ScalarType type) { return fmt::format("torch.{}", python_name(type)); }

std::string spoken_type(const OptionValue& value) {
  const std::string_view name = type_name(value);
  const bool whole = value.is<OptionNone>() || name.find(' ') != std::string_view::npos;
  if (whole) return std::string(name);
  constexpr std::string_view vowels = "aeioAEIO";
  return fmt::format("{} {}", vowels.find(name[0]) != std::string_view::npos ? "an" : "a", name);
}

std::string spoken_value(const OptionValue& value) {
  const std::string text = to_string(value);
  constexpr size_t long_text = 40;
  const bool shown = !value.is<OptionNone>() && !value.is<OptionUnknown>() && !text.empty() &&
                     text.size() <= long_text;
  return shown ? fmt::format("{} ({})", spoken_type(value), text) : spoken_type(value);
}

}  // namespace tessera
