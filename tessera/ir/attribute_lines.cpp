#include "tessera/ir/attribute_lines.h"

#include <limits>

#include "tessera/base/error.h"
#include "tessera/ir/text.h"

namespace tessera {

AttributeLine::AttributeLine(std::string_view text, int number, std::string_view whole,
                             std::span<const Blob> blobs)
    : number_(number), whole_(whole) {
  const size_t blank = std::min(text.find(' '), text.size());
  word_ = text.substr(0, blank);
  std::string_view rest = text.substr(blank);
  try {
    attrs_ = take_attributes(rest, blobs);
  } catch (const Error& error) {
    fail_with(error.message());
  }
  if (rest.find_first_not_of(" \r") != std::string_view::npos) {
    fail_with("there is more after the attributes");
  }
}

size_t AttributeLine::take_index(std::string_view name) {
  const auto value = take<int64_t>(name);
  if (value < 0) fail_with(fmt::format("'{}' is {}, which is no index", name, value));
  return static_cast<size_t>(value);
}

int64_t AttributeLine::take_count(std::string_view name) {
  const auto value = take<int64_t>(name);
  if (value < 1 || value > std::numeric_limits<int32_t>::max()) {
    fail_with(fmt::format("'{}' is {}, which is no count", name, value));
  }
  return value;
}

TensorType AttributeLine::take_type() {
  TensorType type{take<DType>("dtype"), take<std::vector<int64_t>>("shape")};
  if (!fits_in_memory(type)) fail_with("there is no tensor of that shape");
  return type;
}

void AttributeLine::end() const {
  if (attrs_.empty()) return;
  fail_with(fmt::format("'{}' has nothing called '{}'", word_, attrs_.begin()->first));
}

void AttributeLine::fail_with(std::string_view what) const {
  fail(ErrorKind::value, "line {} of {}: {}", number_, whole_, what);
}

void AttributeLine::fail_missing(std::string_view name) const {
  fail_with(fmt::format("'{}' needs a value for '{}'", word_, name));
}

void AttributeLine::fail_unknown(std::string_view name, std::string_view text) const {
  fail_with(fmt::format("'{}' is no {}", text, name));
}

void read_attribute_lines(std::string_view text, std::string_view whole,
                          std::span<const Blob> blobs,
                          const std::function<void(AttributeLine&)>& add) {
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line_text = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line_text.find_first_not_of(" \r") == std::string_view::npos) continue;
    AttributeLine line(line_text, number, whole, blobs);
    add(line);
  }
}

void set_type(Attrs& attrs, const TensorType& type) {
  attrs.set("dtype", type.dtype);
  attrs.set("shape", type.shape);
}

}  // namespace tessera
