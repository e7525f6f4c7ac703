// The part of a file that says how its program was compiled and what states it has: a line for each
// fact (ir/attribute_lines.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/rng.h"
#include "tessera/files/executable_file.h"

namespace tessera {

struct ProgramFacts {
  CompileOptions options;
  bool has_values = false;  // of the states
  std::vector<SavedState> states;
  std::vector<SavedNumber> hyperparameters;
  std::optional<RngState> rng;
};

std::string print(const ProgramFacts& facts);

// Error, with the line, for a text that is none.
ProgramFacts parse_program_facts(std::string_view text);

}  // namespace tessera
