// The user's lines in a program from a file. They are those of the day when it was compiled; today
// the same code may stand elsewhere.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/runtime/program_key.h"

namespace tessera {

// A line of text for each, and back; what is no such text gives fewer lines.
std::string print_lines(const std::vector<SourceLine>& lines);
std::vector<SourceLine> parse_lines(std::string_view text);

// Puts the lines of today into a graph that was made of a program with those of `before`, where
// both are the lines of one program by its key.
void move_lines(Graph& graph, const std::vector<SourceLine>& before,
                const std::vector<SourceLine>& today);

}  // namespace tessera
