#include "tessera/torch/compat.h"

#include <torch/csrc/jit/runtime/interpreter.h>

#include <atomic>

namespace tessera::compat {

void let_exceptions_pass_torchscript(bool pass) {
  bool& flag = FLAGS_torch_jit_enable_rethrow_caught_exception;
  static std::atomic<bool> is_ours = false;  // what the user's program has set stays
  if (pass == is_ours || (pass && flag)) return;
  flag = pass;
  is_ours = pass;
}

}  // namespace tessera::compat
