// Programs that were compiled before, in a folder: one file for each, named by what it was compiled
// from. Of several processes that want one that is not there, one compiles it and the others wait.
//
// Nothing that is wrong with the folder or with a file in it stops a program or changes what it
// computes: then it is compiled, and one warning says why. Files are never removed; one that cannot
// be used is replaced.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "tessera/ir/graph.h"
#include "tessera/runtime/compile.h"
#include "tessera/runtime/executable.h"

namespace tessera {

struct CacheRequest {
  Graph graph;              // as it was captured
  StepSignature signature;  // ... and what goes in and out of it
  std::string program;      // program_key() of the two
  CompileOptions options = {};
  std::string host = {};            // who runs the graph's host calls: PyTorch's version
  std::function<void()> poll = {};  // while others compile; may throw
};

struct CacheResult {
  std::shared_ptr<const Executable> executable;
  bool is_hit = false;
  double load_seconds = 0;     // what a hit took,
  double compile_seconds = 0;  // and what compiling had taken
};

class ExecutableCache {
 public:
  // A folder that is missing is made, with a warning. `patience`: how long to wait for another
  // process that compiles the same.
  explicit ExecutableCache(std::string folder,
                           std::chrono::milliseconds patience = std::chrono::minutes(3));

  // Whether programs can be kept in it.
  bool is_writable() const;

  // The program from the folder; else it is compiled, and kept there.
  CacheResult find_or_compile(CacheRequest request) const;

 private:
  std::string folder_;
  std::chrono::milliseconds patience_;
  bool usable_ = false;
};

}  // namespace tessera
