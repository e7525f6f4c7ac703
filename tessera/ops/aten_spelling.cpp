#include "tessera/ops/aten_spelling.h"

#include <mutex>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/ops/split_names.h"

namespace tessera {
namespace {

ParsedSpelling parse_spelling(const AtenSpelling& spelling) {
  ParsedSpelling parsed;
  const auto parts = split_names(spelling.arguments, '|');
  if (!parts.empty()) parsed.operands = split_names(parts[0]);
  if (parts.size() > 1) {
    for (const std::string& entry : split_names(parts[1])) {
      const size_t equals = entry.find('=');
      ParsedSpelling::Attribute attribute;
      attribute.name = entry.substr(0, equals);
      const std::string source = equals == std::string::npos ? entry : entry.substr(equals + 1);
      if (source.starts_with('#')) {
        attribute.fixed = source.substr(1);
      } else {
        attribute.argument = source;
      }
      parsed.attributes.push_back(std::move(attribute));
    }
  }
  for (const std::string& entry : split_names(spelling.hidden_mutations)) {
    const size_t equals = entry.find('=');
    parsed.hidden_mutations.emplace_back(entry.substr(0, equals),
                                         std::stoul(entry.substr(equals + 1)));
  }
  return parsed;
}

}  // namespace

const ParsedSpelling& parsed(const AtenSpelling& spelling) {
  static std::mutex mutex;
  static std::unordered_map<const AtenSpelling*, ParsedSpelling> cache;
  const std::lock_guard lock(mutex);
  auto at = cache.find(&spelling);
  if (at == cache.end()) at = cache.emplace(&spelling, parse_spelling(spelling)).first;
  return at->second;
}

Attr fixed_value(const std::string& text, AttrType type) {
  switch (type) {
    case AttrType::boolean:
      return text == "true";
    case AttrType::integer:
      return static_cast<int64_t>(std::stoll(text));
    case AttrType::number:
      return std::stod(text);
    case AttrType::text:
      return text;
    case AttrType::dtype:
      return dtype_named(text).value();
    case AttrType::integers:
    case AttrType::numbers: {
      std::vector<int64_t> integers;
      std::vector<double> numbers;
      for (const std::string& item : split_names(text.substr(1, text.size() - 2))) {
        integers.push_back(std::stoll(item));
        numbers.push_back(std::stod(item));
      }
      return type == AttrType::integers ? Attr(integers) : Attr(numbers);
    }
    case AttrType::blob:
    case AttrType::body:
      break;
  }
  TESSERA_UNREACHABLE("a fixed attribute '{}' cannot be of type {}", text, name_of(type));
}

}  // namespace tessera
