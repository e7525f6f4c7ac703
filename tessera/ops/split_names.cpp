#include "tessera/ops/split_names.h"

namespace tessera {
namespace {

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::vector<std::string> split_names(std::string_view text, char separator) {
  std::vector<std::string> names;
  if (trimmed(text).empty()) return names;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i == text.size() || (text[i] == separator && depth == 0)) {
      names.emplace_back(trimmed(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  return names;
}

}  // namespace tessera
