// Weights of other models that a program has as constants, because forward called those models: the
// program keeps the values of the time when it was compiled.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "tessera/api/executor/host_weights.h"
#include "tessera/torch/recorder.h"

namespace tessera {

class BorrowedWeights {
 public:
  BorrowedWeights() = default;
  explicit BorrowedWeights(const std::vector<NamedTensor>& weights);

  // A warning, once, where one of them has changed. For every call: cheap.
  void notice_changes();

 private:
  struct Borrowed {
    std::string name;
    at::Tensor tensor;
    uint32_t tensor_version = 0;
    const void* memory = nullptr;
    std::shared_ptr<HostWeight> record;
    uint64_t record_version = 0;
  };
  static bool changed(const Borrowed& weight);

  std::vector<Borrowed> weights_;
};

}  // namespace tessera
