// Where the program of a captured step comes from: a file that was saved, the executable cache, or
// the compiler.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tessera/api/executor/program.h"
#include "tessera/api/executor/saved_model.h"
#include "tessera/api/options/options.h"

namespace tessera {

struct FoundProgram {
  std::shared_ptr<const Executable> executable;
  std::string saved_time = {};  // what was saved by not compiling, in words
};

// Compiled, unless the cache that the options name has it.
FoundProgram find_program(Graph graph, StepSignature signature, const SavedFacts& facts,
                          const Options& options, const std::function<void()>& poll);

// That of the file. Error where it is another one than was captured.
FoundProgram take_program(const SavedModel& saved, Graph captured, StepSignature signature,
                          const SavedFacts& facts);

}  // namespace tessera
