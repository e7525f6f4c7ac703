// Where the user wrote what is being recorded. A forward operator is asked for at the moment it
// runs; a backward operator takes the place of the forward operator it differentiates, which
// autograd's sequence numbers tell.
#pragma once

#include <ATen/record_function.h>

#include <functional>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera {

// For messages: "train.py:31", else the module, else "forward".
std::string place(const Origin& origin);

class Provenance {
 public:
  explicit Provenance(std::function<Origin()> locate);
  ~Provenance();
  Provenance(const Provenance&) = delete;
  Provenance& operator=(const Provenance&) = delete;

  // From now on operators are part of the backward pass.
  void begin_backward() { backward_ = true; }

  // The origin of the operator that is being recorded.
  Origin origin();

  // The number of the autograd node that will differentiate that operator, and of the one that is
  // being evaluated; -1 where there is none.
  int64_t own_sequence() const { return own_; }
  int64_t running_sequence() const { return running_.empty() ? -1 : running_.back(); }

  // Completes the newest forward operator, where the front end cannot tell which module runs.
  void name_module(const std::string& path);

 private:
  struct ForwardOp {
    int64_t sequence;
    Origin origin;
  };

  std::function<Origin()> locate_;
  bool backward_ = false;
  std::vector<ForwardOp> forward_;  // sequence numbers never fall
  int64_t newest_ = -1, own_ = -1;
  std::vector<int64_t> running_;  // autograd nodes being evaluated, innermost last
  int64_t last_finished_ = -1;    // fan-out sums run after their node
  at::CallbackHandle callback_ = 0;
};

}  // namespace tessera
