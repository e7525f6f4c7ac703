// Chooses between kernels by timing those that apply, instead of by the order of the table. Each
// use is timed once; what was chosen is kept as text, so that a later compilation repeats it
// without timing and gives the same bits.
#pragma once

#include <map>
#include <string>

#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/base/thread_pool.h"

namespace tessera::cpu {

using TunedKernels = std::map<std::string, std::string>;  // an entry's name, by use

// A use as text: the operator, its attributes, and how operands and results lie.
std::string text_of(const KernelUse& use);

class KernelTuner {
 public:
  // Repeats `known` choices; times the others with so many threads, or not at all where 0.
  KernelTuner(TunedKernels known, int threads);

  KernelChoice choose(const KernelUse& use);

  // What was decided by timing, now or before, of the uses it was asked for.
  const TunedKernels& choices() const { return choices_; }

 private:
  const KernelEntry* fastest(const KernelUse& use, std::span<const KernelEntry* const> entries);

  TunedKernels known_, choices_;
  int threads_;
};

}  // namespace tessera::cpu
