// Names for programs: two that have the same name do the same. They are made of what was captured,
// before anything is compiled, so that what was compiled before can be found.
#pragma once

#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/runtime/compile.h"
#include "tessera/runtime/step_signature.h"

namespace tessera {

// What a step computes: its graph with its constants, and its signature. Its name and the values of
// states are no part of it, nor are the user's files and lines; but which nodes stand on the same
// line is, so that the lines of one program can take the place of another's (source_lines()). 64
// hexadecimal digits, as below.
std::string program_key(const Graph& graph, const StepSignature& signature);

// The program and how it is compiled: all that may change what is made of it. Threads, what is
// logged and what is checked on the way are no part of it.
std::string compile_key(const std::string& program, const CompileOptions& options);

// The lines of the user's files that a graph's nodes come from, each once, in their order.
struct SourceLine {
  std::string file;
  int line = 0;

  auto operator<=>(const SourceLine&) const = default;
};
std::vector<SourceLine> source_lines(const Graph& graph);

}  // namespace tessera
