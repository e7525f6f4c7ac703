// An executor that is called while another model is captured: its forward becomes part of the other
// model's program.
#include <ATen/ATen.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "tessera/api/executor/executor.h"
#include "tessera/api/executor/input_check.h"
#include "tessera/base/error.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/dispatch.h"
#include "tessera/torch/narrowing.h"

namespace tessera {
namespace {

class Set {
 public:
  explicit Set(bool& flag) : flag_(flag) { flag_ = true; }
  ~Set() { flag_ = false; }
  Set(const Set&) = delete;
  Set& operator=(const Set&) = delete;

 private:
  bool& flag_;
};

}  // namespace

void Executor::check_callable() {
  check(
      !is_capturing(),
      "a wrapped model was called while forward, or a hook, of a wrapped model is captured for its "
      "program; call the module itself there, for example executor.model(...)");
}

Forward Executor::noted(Forward forward) {
  return [this, forward = std::move(forward)](const std::vector<at::Tensor>& inputs) {
    const Set flag(in_forward_);
    return forward(inputs);
  };
}

void Executor::check_callable_inside() const {
  if (purpose_ == Purpose::training) check_callable();
  check(!in_forward_,
        "a wrapped model was called while its own forward is captured, which would never end; call "
        "the module itself there, for example executor.model(...)");
  const auto refuse = [](bool differs, std::string_view what) {
    check(!differs,
          "a wrapped model with {} was called while forward of another is captured for its "
          "program, of which it cannot be a part; wrap its module without that option, or call the "
          "module itself",
          what);
  };
  refuse(options_.device_iterations() != 1, "deviceIterations of more than one");
  refuse(!options_.anchored_tensors().empty(), "anchored tensors");
  refuse(options_.synthetic_data(), "synthetic data");
  refuse(is_offline(), "an offline device");
}

// Where the device has the weights too, those of the module must be the same. The lock is never
// waited for: whoever has it may be waiting for the end of this capture, to compile.
void Executor::check_weights_sent() {
  std::unique_lock lock(mutex_, std::defer_lock);
  while (isAttachedToDevice()) {
    if (lock.try_lock()) {
      if (!isAttachedToDevice() || have_weights()) break;
      lock.unlock();
    }
    if (model_.poll) model_.poll();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (!lock || !isAttachedToDevice()) return;
  const NotRecorded quiet;
  for (size_t i = 0; i < weights_.size(); ++i) {
    const at::Tensor host = narrowed_values(weights_[i].host, weights_[i].name);
    const at::Tensor device = at::empty_like(host);
    session_->read_state(i, bytes_of(device));
    check(std::memcmp(bytes_of(host).data(), bytes_of(device).data(), bytes_of(host).size()) == 0,
          "'{}' of a wrapped model that forward calls has other values on the device than in the "
          "module, and only one of them can be part of the program; call copyWeightsToDevice() or "
          "copyWeightsToHost() on the wrapped model first",
          weights_[i].name);
  }
}

std::vector<at::Tensor> Executor::run_inside(const std::vector<NamedTensor>& inputs,
                                             Forward forward) {
  check_callable_inside();
  bring_weights_to_host();
  check_weights_sent();
  CaptureRequest request;
  request.parameters = model_.parameters();
  request.buffers = model_.buffers();
  for (const auto& [name, tensor] : module_tensors()) {
    if (tensor.is_cpu() && tensor.layout() == at::kStrided) check_memory(name, tensor);
  }
  request.example_inputs = inputs;
  request.forward = noted(std::move(forward));
  return capture_inside(request);
}

}  // namespace tessera
