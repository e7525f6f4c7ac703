// A spelling of the operator table (AtenSpelling), taken apart.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/ops/op_def.h"

namespace tessera {

struct ParsedSpelling {
  struct Attribute {
    std::string name;
    std::string argument;              // ATen's argument ...
    std::optional<std::string> fixed;  // ... or the text of a fixed value
  };
  std::vector<std::string> operands;  // ATen's arguments in the order of our operands
  std::vector<Attribute> attributes;
  std::vector<std::pair<std::string, size_t>> hidden_mutations;  // argument, result
};

const ParsedSpelling& parsed(const AtenSpelling& spelling);

// The fixed value of an attribute of that type.
Attr fixed_value(const std::string& text, AttrType type);

}  // namespace tessera
