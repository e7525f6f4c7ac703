// An executor that is called while another model is captured: its forward becomes part of the other
// model's program.
#include <chrono>
#include <thread>

#include "tessera/api/executor/executor.h"
#include "tessera/base/error.h"

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
  refuse(options_.replication_factor() != 1, "replicationFactor of more than one");
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
      if (!isAttachedToDevice() || weights_.are_on_device()) break;
      lock.unlock();
    }
    if (model_.poll) model_.poll();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (!lock || !isAttachedToDevice()) return;
  weights_.check_same_on_device();
}

std::vector<at::Tensor> Executor::run_inside(const std::vector<NamedTensor>& inputs,
                                             Forward forward) {
  check_callable_inside();
  weights_.bring_to_host();
  check_weights_sent();
  groupings_.check(model_.parameters(), options_.replication_factor());
  const ValuesOfOneGroup of_one_group(groupings_, model_.parameters());
  CaptureRequest request;
  request.parameters = model_.parameters();
  request.buffers = model_.buffers();
  weights_.check_host_memory();
  request.example_inputs = inputs;
  request.forward = noted(std::move(forward));
  return capture_inside(request);
}

}  // namespace tessera
