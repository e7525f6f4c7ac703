// A graph from a file, compiled and run on made-up values.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/runtime/session.h"

namespace tessera {

class Trial {
 public:
  // Error unless there is at least one run and one thread.
  Trial(Graph graph, int64_t runs, int threads);

  void step() { session_.run(request_); }
  Session& session() { return session_; }
  const cpu::Plan& plan() const { return executable_->plan(); }

 private:
  std::shared_ptr<const Executable> executable_;
  Session session_;
  std::vector<std::vector<std::byte>> values_;  // of inputs, and room for outputs
  RunRequest request_;
};

}  // namespace tessera
