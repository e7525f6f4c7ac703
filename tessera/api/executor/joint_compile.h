// Before instances train together they agree on what: the same program, options and random seed,
// compiled for the same kind of CPU. Otherwise each would train another model.
#pragma once

#include <functional>
#include <string>

#include "tessera/api/options/options.h"
#include "tessera/base/rng.h"
#include "tessera/dist/link.h"
#include "tessera/runtime/compile.h"
#include "tessera/runtime/step_signature.h"

namespace tessera {

struct JointCompile {
  std::string name;  // of the program
  std::string program_key;
  const StepSignature& signature;
  const Options& options;
  bool has_seed = false;  // the user chose the random numbers
  const std::function<void()>& poll;
};

// Error, on all instances, where one of them differs. Where nobody chose a seed, all have that of
// the first; where CPUs differ, all compile for the one that can least.
void agree(dist::Link& instances, const JointCompile& joint, CompileOptions& compile,
           RngState& rng);

}  // namespace tessera
