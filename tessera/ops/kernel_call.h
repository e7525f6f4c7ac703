// What a kernel sees of the node it runs: tensors, attributes, threads, random state and the other
// replicas.
#pragma once

#include <span>

#include "tessera/base/communicator.h"
#include "tessera/base/rng.h"
#include "tessera/base/tensor_view.h"
#include "tessera/base/thread_pool.h"
#include "tessera/ir/attributes.h"

namespace tessera {

struct KernelCall {
  std::span<const TensorView> inputs;   // any strides; an operand left out is not `present`
  std::span<const TensorView> outputs;  // dense, row-major
  const Attrs& attrs;
  ThreadPool& pool;
  RngState rng;
  Communicator* replicas = nullptr;  // null: the program runs alone
  // Where the results begin in the row-major order of the whole ones, for element-wise rows that
  // read the random state: bodies run them on parts.
  int64_t first_element = 0;
  // Which of the program's collectives this is, and whether it was begun before, on its operands.
  size_t collective = 0;
  bool collective_has_begun = false;

  bool has_input(size_t i) const { return i < inputs.size() && inputs[i].present; }
};

}  // namespace tessera
