// How the weights of a module and those of its program stay one: which side has the newest values,
// and how they travel. Other executors over the same module ask for them here.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/api/executor/borrowed_weights.h"
#include "tessera/api/executor/host_weights.h"
#include "tessera/api/executor/model_access.h"
#include "tessera/api/executor/module_weights.h"
#include "tessera/api/executor/program.h"

namespace tessera {

class WeightsLink : private WeightHolder {
 public:
  // Keeps references: `mutex` is the executor's, which others than its caller have to take.
  WeightsLink(std::recursive_mutex& mutex, const ModelAccess& model, Program& program)
      : mutex_(mutex), model_(model), program_(program) {}
  // From now on nobody is told that we have newer values. Waits for those who are asking.
  void close();

  // Before a step is captured: the newest values of every weight are on the host, with memory.
  void bring_to_host() const;
  void check_host_memory() const;
  // Afterwards: the program has these. `trained`: by it.
  void bind(const Capture& captured, bool trained);
  void clear();

  // Nothing happens in these where the program is not attached to a device.
  void copy_to_host();
  void copy_to_device();
  void copy_named_to_device(const std::vector<std::string>& names);
  bool copy_to_host_if_needed();  // true where a copy happened

  // What the module has, in the program's types: what a device would be given.
  std::vector<at::Tensor> host_values();

  bool host_is_outdated() const;  // the device has newer ones
  void mark_host_outdated();
  void were_replaced() { look_again_ = true; }  // the module has others than before

  // Before a call: the newest that the module has are on the device. False where another executor
  // that has them is at work.
  bool are_on_device();
  void notice_borrowed_changes() { borrowed_.notice_changes(); }

  // Error where the tensor lies in a weight's memory, which forward would change.
  void check_apart(const at::Tensor& input, const std::string& name);
  // Error where module and device have different values.
  void check_same_on_device();

 private:
  void write_weights_to_host() override { copy_to_host_if_needed(); }
  bool try_write_weights_to_host() override;
  void look_up();
  bool fetch_newer();
  void read(size_t index);
  void make_room(size_t index);
  void write_trained();
  void send(size_t index);

  std::recursive_mutex& mutex_;
  const ModelAccess& model_;
  Program& program_;
  ModuleWeights weights_;                 // the executable's first states
  std::atomic<bool> look_again_ = false;  // the module has other tensors
  BorrowedWeights borrowed_;
  std::atomic<bool> host_outdated_ = false;  // also read without the lock
  const std::shared_ptr<HolderAccess> access_ =
      std::make_shared<HolderAccess>(static_cast<WeightHolder&>(*this));
};

}  // namespace tessera
