// How an executor's weights travel between the user's module and the device.
#include <ATen/ATen.h>

#include <algorithm>

#include "tessera/api/executor/executor.h"
#include "tessera/api/executor/input_check.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/dispatch.h"
#include "tessera/torch/narrowing.h"
#include "tessera/torch/tensor_memory.h"

namespace tessera {

std::vector<NamedTensor> Executor::module_tensors() const {
  std::vector<NamedTensor> tensors = model_.parameters();
  for (NamedTensor& buffer : model_.buffers()) tensors.push_back(std::move(buffer));
  return tensors;
}

// What was trained until now belongs to the tensors that the module had until now.
void Executor::look_up_weights() {
  look_again_ = false;
  weights_.look_up(module_tensors(), [this](size_t index) {
    if (isAttachedToDevice() && host_outdated_ && !weights_[index].to_send) read_weight(index);
  });
}

void Executor::copyWeightsToHost() {
  const std::lock_guard lock(mutex_);
  check_compiled();
  if (!isAttachedToDevice()) return;
  look_up_weights();
  weights_.check_fit();
  for (ModuleWeight& weight : weights_) check_memory(weight.name, weight.host);
  for (ModuleWeight& weight : weights_) weight.to_send = false;
  write_trained_weights();
}

bool Executor::host_is_outdated() const {
  if (!host_outdated_) return false;  // also while another thread compiles
  const std::lock_guard lock(mutex_);
  return isAttachedToDevice() && host_outdated_;
}

bool Executor::copyWeightsToHostIfNeeded() {
  if (!host_outdated_) return false;
  const std::lock_guard lock(mutex_);
  if (!host_is_outdated()) return false;
  write_trained_weights();
  return true;
}

// To the tensors that the module had when the program ran: what the user put there since is newer.
void Executor::write_trained_weights() {
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (!weights_[i].to_send) read_weight(i);
  }
  // Weights that lie in one storage have one record.
  for (ModuleWeight& weight : weights_) weight.sent_version = weight.record->version;
  host_outdated_ = false;
}

void Executor::read_weight(size_t index) {
  const NotRecorded quiet;  // user code may read a weight while another model is captured
  const at::NoGradGuard no_grad;
  ModuleWeight& weight = weights_[index];
  const at::Tensor& host = weight.host;
  weight.record->version += 1;
  weight.record->forget_newer_values_of(access_);
  if (!has_memory(host)) {
    log(LogLevel::warn, "the trained '{}' is not written to the module: its memory is gone",
        weight.name);
    return;
  }
  const auto device_type = scalar_type_of(executable_->states()[index].type.dtype);
  const bool direct = host.is_contiguous() && host.scalar_type() == device_type;
  const at::Tensor staged = direct ? host : at::empty(host.sizes(), device_type);
  session_->read_state(index, bytes_of(staged));
  if (!direct) host.copy_(staged);
}

void Executor::copyWeightsToDevice() {
  const std::lock_guard lock(mutex_);
  check_compiled();
  if (!isAttachedToDevice()) return;
  look_up_weights();
  weights_.check_fit();
  const bool some_replaced = std::any_of(weights_.begin(), weights_.end(),
                                         [](const ModuleWeight& weight) { return weight.to_send; });
  // Whoever replaces one did not need to look at the others, whose newest values the device has.
  if (some_replaced) copyWeightsToHostIfNeeded();
  for (size_t i = 0; i < weights_.size(); ++i) send_weight(i);
  host_outdated_ = false;
}

void Executor::send_weight(size_t index) {
  ModuleWeight& weight = weights_[index];
  HostWeight& record = *weight.record;
  if (const auto holder = record.newer_values(); holder && holder != access_) {
    holder->write_weights_to_host();
  }
  check_memory(weight.name, weight.host);
  const NotRecorded quiet;
  const std::string what = fmt::format(
      "{} '{}'", weight.kind == StateKind::parameter ? "parameter" : "buffer", weight.name);
  session_->write_state(index, bytes_of(narrowed_values(weight.host, what)));
  weight.sent_version = record.version;
  weight.to_send = false;
  record.forget_newer_values_of(access_);
}

void Executor::copyNamedBuffersToDevice() {
  const std::lock_guard lock(mutex_);
  check_compiled();
  const auto names = options_.updatable_named_buffers();
  check(names.has_value(),
        "copyNamedBuffersToDevice: no buffers were named; use Options.updatableNamedBuffers()");
  if (!isAttachedToDevice()) return;  // attaching sends all of them
  look_up_weights();
  weights_.check_fit();
  const auto is_named = [&](const std::string& name) {
    return std::find(names->begin(), names->end(), name) != names->end();
  };
  for (size_t i = 0; i < weights_.size(); ++i) {
    const auto& tied = weights_[i].tied;
    if (is_named(weights_[i].name) || std::any_of(tied.begin(), tied.end(), is_named)) {
      send_weight(i);
    }
  }
}

// Another executor over the same module may hold newer weights than the host.
void Executor::bring_weights_to_host() const {
  for (const auto& named : module_tensors()) {
    if (!named.tensor.has_storage()) continue;
    const auto holder = host_weight(named.tensor)->newer_values();
    if (holder && holder != access_) holder->write_weights_to_host();
  }
}

bool Executor::try_write_weights_to_host() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) copyWeightsToHostIfNeeded();
  return lock.owns_lock();
}

// The newest that the module has; false where another executor that has them is at work.
bool Executor::have_weights() {
  if (look_again_ || weights_.moved()) {
    look_up_weights();
    weights_.check_fit();
  }
  return fetch_newer_weights();
}

// ... and may have trained on since we took the weights from the host.
bool Executor::fetch_newer_weights() {
  bool stale = false, replaced = false;
  for (const ModuleWeight& weight : weights_) {
    const auto holder = weight.record->newer_values();
    replaced = replaced || weight.to_send;
    if (holder == access_) continue;  // ours are the newest, whatever was written to the host
    if (holder && !holder->try_write_weights_to_host()) return false;
    stale = stale || (!weight.to_send && weight.sent_version != weight.record->version);
  }
  if (stale) copyWeightsToDevice();
  for (size_t i = 0; i < weights_.size() && replaced; ++i) {
    if (weights_[i].to_send) send_weight(i);
  }
  return true;
}

void Executor::mark_host_outdated() {
  host_outdated_ = true;
  for (const ModuleWeight& weight : weights_) weight.record->set_newer_values(access_);
}

}  // namespace tessera
