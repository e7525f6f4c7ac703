#include "tessera/api/executor/weights_link.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>

#include "tessera/api/executor/input_check.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/dispatch.h"
#include "tessera/torch/narrowing.h"
#include "tessera/torch/tensor_memory.h"

namespace tessera {

void WeightsLink::close() {
  for (const ModuleWeight& weight : weights_) {
    weight.record->forget_newer_values_of(access_);
  }
  access_->close();
}

// Another executor over the same module may hold newer weights than the host.
void WeightsLink::bring_to_host() const {
  for (const auto& named : model_.tensors()) {
    if (!named.tensor.has_storage()) continue;
    const auto holder = host_weight(named.tensor)->newer_values();
    if (holder && holder != access_) holder->write_weights_to_host();
  }
}

void WeightsLink::check_host_memory() const {
  for (const auto& [name, tensor] : model_.tensors()) {
    if (tensor.is_cpu() && tensor.layout() == at::kStrided) check_memory(name, tensor);
  }
}

void WeightsLink::bind(const Capture& captured, bool trained) {
  weights_ = ModuleWeights(captured.states, model_.tensors(), trained);
  borrowed_ = BorrowedWeights(captured.borrowed);
  look_again_ = false;
}

void WeightsLink::clear() {
  host_outdated_ = false;
  weights_ = {};
  borrowed_ = {};
}

// What was trained until now belongs to the tensors that the module had until now.
void WeightsLink::look_up() {
  look_again_ = false;
  weights_.look_up(model_.tensors(), [this](size_t index) {
    if (program_.is_attached() && host_outdated_ && !weights_[index].to_send) read(index);
  });
}

void WeightsLink::copy_to_host() {
  if (!program_.is_attached()) return;
  look_up();
  weights_.check_fit();
  for (ModuleWeight& weight : weights_) check_memory(weight.name, weight.host);
  for (ModuleWeight& weight : weights_) weight.to_send = false;
  write_trained();
}

std::vector<at::Tensor> WeightsLink::host_values() {
  bring_to_host();
  look_up();
  weights_.check_fit();
  const NotRecorded quiet;
  std::vector<at::Tensor> values;
  for (const ModuleWeight& weight : weights_) {
    check_memory(weight.name, weight.host);
    values.push_back(narrowed_values(weight.host, fmt::format("'{}'", weight.name)));
  }
  return values;
}

bool WeightsLink::host_is_outdated() const {
  if (!host_outdated_) return false;  // also while another thread compiles
  const std::lock_guard lock(mutex_);
  return program_.is_attached() && host_outdated_;
}

bool WeightsLink::copy_to_host_if_needed() {
  if (!host_outdated_) return false;
  const std::lock_guard lock(mutex_);
  if (!host_is_outdated()) return false;
  write_trained();
  return true;
}

// To the tensors that the module had when the program ran: what the user put there since is newer.
void WeightsLink::write_trained() {
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (!weights_[i].to_send) read(i);
  }
  // Weights that lie in one storage have one record.
  for (ModuleWeight& weight : weights_) weight.sent_version = weight.record->version;
  host_outdated_ = false;
}

void WeightsLink::read(size_t index) {
  const NotRecorded quiet;  // user code may read a weight while another model is captured
  const at::NoGradGuard no_grad;
  ModuleWeight& weight = weights_[index];
  make_room(index);
  const at::Tensor& host = weight.host;
  weight.record->version += 1;
  weight.record->forget_newer_values_of(access_);
  if (!has_memory(host)) {
    log(LogLevel::warn, "the trained '{}' is not written to the module: its memory is gone",
        weight.name);
    return;
  }
  const auto device_type = scalar_type_of(program_.executable().states()[index].type.dtype);
  const bool direct = host.is_contiguous() && host.scalar_type() == device_type;
  const at::Tensor staged = direct ? host : at::empty(host.sizes(), device_type);
  program_.session().read_state(index, bytes_of(staged));
  if (!direct) host.copy_(staged);
}

// A weight that is read as one value for each replica has, until it is read, perhaps only one for
// each group of them.
void WeightsLink::make_room(size_t index) {
  ModuleWeight& weight = weights_[index];
  const Shape wanted = program_.executable().host_type(index).shape;
  if (weight.host.sizes() == wanted || !weight.tensor.defined()) return;
  weight.record->forget_newer_values_of(access_);
  weight.tensor.set_data(at::empty(wanted, weight.host.options()));
  weight.host = window_of(weight.tensor);
  weight.record = host_weight(weight.host);
}

void WeightsLink::copy_to_device() {
  if (!program_.is_attached()) return;
  look_up();
  weights_.check_fit();
  const bool some_replaced = std::any_of(weights_.begin(), weights_.end(),
                                         [](const ModuleWeight& weight) { return weight.to_send; });
  // Whoever replaces one did not need to look at the others, whose newest values the device has.
  if (some_replaced) copy_to_host_if_needed();
  for (size_t i = 0; i < weights_.size(); ++i) send(i);
  host_outdated_ = false;
}

void WeightsLink::send(size_t index) {
  ModuleWeight& weight = weights_[index];
  HostWeight& record = *weight.record;
  if (const auto holder = record.newer_values(); holder && holder != access_) {
    holder->write_weights_to_host();
  }
  check_memory(weight.name, weight.host);
  const NotRecorded quiet;
  const std::string what = fmt::format(
      "{} '{}'", weight.kind == StateKind::parameter ? "parameter" : "buffer", weight.name);
  program_.session().write_state(index, bytes_of(narrowed_values(weight.host, what)));
  weight.sent_version = record.version;
  weight.to_send = false;
  record.forget_newer_values_of(access_);
}

void WeightsLink::copy_named_to_device(const std::vector<std::string>& names) {
  if (!program_.is_attached()) return;  // attaching sends all of them
  look_up();
  weights_.check_fit();
  const auto is_named = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (size_t i = 0; i < weights_.size(); ++i) {
    const auto& tied = weights_[i].tied;
    if (is_named(weights_[i].name) || std::any_of(tied.begin(), tied.end(), is_named)) send(i);
  }
}

bool WeightsLink::try_write_weights_to_host() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) copy_to_host_if_needed();
  return lock.owns_lock();
}

bool WeightsLink::are_on_device() {
  if (look_again_ || weights_.moved()) {
    look_up();
    weights_.check_fit();
  }
  return fetch_newer();
}

// Another executor may have trained on since we took the weights from the host.
bool WeightsLink::fetch_newer() {
  bool stale = false, replaced = false;
  for (const ModuleWeight& weight : weights_) {
    const auto holder = weight.record->newer_values();
    replaced = replaced || weight.to_send;
    if (holder == access_) continue;  // ours are the newest, whatever was written to the host
    if (holder && !holder->try_write_weights_to_host()) return false;
    stale = stale || (!weight.to_send && weight.sent_version != weight.record->version);
  }
  if (stale) copy_to_device();
  for (size_t i = 0; i < weights_.size() && replaced; ++i) {
    if (weights_[i].to_send) send(i);
  }
  return true;
}

void WeightsLink::mark_host_outdated() {
  host_outdated_ = true;
  for (const ModuleWeight& weight : weights_) weight.record->set_newer_values(access_);
}

void WeightsLink::check_apart(const at::Tensor& input, const std::string& name) {
  for (const ModuleWeight& weight : weights_) {
    check(!share_memory(input, weight.host),
          "forward changes the input '{}' in place, which lies in the memory of the model's '{}': "
          "a program cannot follow that; pass a clone() of it",
          name, weight.name);
  }
}

void WeightsLink::check_same_on_device() {
  const NotRecorded quiet;
  for (size_t i = 0; i < weights_.size(); ++i) {
    const at::Tensor host = narrowed_values(weights_[i].host, weights_[i].name);
    const at::Tensor device = at::empty_like(host);
    program_.session().read_state(i, bytes_of(device));
    check(std::memcmp(bytes_of(host).data(), bytes_of(device).data(), bytes_of(host).size()) == 0,
          "'{}' of a wrapped model that forward calls has other values on the device than in the "
          "module, and only one of them can be part of the program; call copyWeightsToDevice() or "
          "copyWeightsToHost() on the wrapped model first",
          weights_[i].name);
  }
}

}  // namespace tessera
