#include "tessera/api/executor/module_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "tessera/api/executor/input_stage.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/dispatch.h"
#include "tessera/torch/fake_storage.h"
#include "tessera/torch/tensor_memory.h"

namespace tessera {
namespace {

// Other memory alone, for instance another layout, is nothing that the device must know.
bool same_values(const at::Tensor& a, const at::Tensor& b) {
  const NotRecorded quiet;
  return has_memory(a) && has_memory(b) && at::equal(a, b);
}

std::string described(const at::Tensor& tensor) {
  return fmt::format("{}{}", c10::toString(tensor.scalar_type()), to_string(shape_of(tensor)));
}

std::string_view spoken(StateKind kind) {
  return kind == StateKind::parameter ? "parameter" : "buffer";
}

using ByName = std::unordered_map<std::string_view, const at::Tensor*>;

ByName by_name(const std::vector<NamedTensor>& tensors) {
  ByName found;
  for (const NamedTensor& named : tensors) found.emplace(named.name, &named.tensor);
  return found;
}

}  // namespace

at::Tensor window_of(const at::Tensor& tensor) {
  return window_over(tensor.storage(), tensor.scalar_type(), geometry_of(tensor));
}

ModuleWeights::ModuleWeights(const std::vector<BoundState>& states,
                             const std::vector<NamedTensor>& tensors, bool trained)
    : trained_(trained) {
  const ByName found = by_name(tensors);
  for (const BoundState& state : states) {
    const at::Tensor& tensor = *found.at(state.name);
    ModuleWeight weight{state.name, state.kind, tensor, state.host, host_weight(state.host)};
    weight.requires_grad = tensor.requires_grad();
    if (tensor.scalar_type() == at::kBFloat16) {
      warn_of_other_type(fmt::format("{} '{}'", spoken(state.kind), state.name), at::kBFloat16);
    }
    for (const NamedTensor& other : tensors) {
      if (other.name != state.name && other.tensor.has_storage() &&
          same_window(other.tensor, tensor)) {
        weight.tied.push_back(other.name);
      }
    }
    weights_.push_back(std::move(weight));
  }
}

bool ModuleWeights::moved() const {
  return std::any_of(weights_.begin(), weights_.end(), [](const ModuleWeight& weight) {
    return !weight.misfit.empty() || !weight.tensor.has_storage() ||
           !same_window(weight.tensor, weight.host) ||
           weight.tensor.requires_grad() != weight.requires_grad;
  });
}

void ModuleWeights::look_up(const std::vector<NamedTensor>& tensors,
                            const std::function<void(size_t)>& replaced) {
  const ByName found = by_name(tensors);
  for (size_t i = 0; i < weights_.size(); ++i) {
    ModuleWeight& weight = weights_[i];
    const auto at = found.find(weight.name);
    weight.tensor = at == found.end() ? at::Tensor() : *at->second;
    if (!weight.tensor.defined() || !weight.tensor.has_storage()) continue;
    notice_freezing(weight);
    if (same_window(weight.tensor, weight.host)) continue;
    if (weight.tensor.sizes() != weight.host.sizes() ||
        weight.tensor.dtype() != weight.host.dtype()) {
      continue;  // a misfit
    }
    replaced(i);
    const at::Tensor before = std::exchange(weight.host, window_of(weight.tensor));
    const bool sent = weight.sent_version == weight.record->version;
    weight.record = host_weight(weight.host);
    const bool shared = std::any_of(weights_.begin(), weights_.end(), [&](const auto& other) {
      return &other != &weight && share_memory(other.host, weight.host);
    });
    weight.to_send = weight.to_send || !sent || shared || !same_values(before, weight.host);
    if (!weight.to_send) weight.sent_version = weight.record->version;
  }
  find_misfits(tensors);
}

void ModuleWeights::notice_freezing(ModuleWeight& weight) const {
  if (weight.tensor.requires_grad() == weight.requires_grad) return;
  weight.requires_grad = weight.tensor.requires_grad();
  if (!trained_ || weight.kind != StateKind::parameter || weight.told) return;
  weight.told = true;
  log(LogLevel::warn,
      "requires_grad of '{}' became {} after the model was compiled: its program goes on training "
      "what it was compiled to train; call destroy() to compile it anew",
      weight.name, weight.requires_grad);
}

void ModuleWeights::find_misfits(const std::vector<NamedTensor>& tensors) {
  const ByName found = by_name(tensors);
  const auto misfit_of = [&](const ModuleWeight& weight) -> std::string {
    if (!weight.tensor.defined()) return "the module has it no longer";
    if (!weight.tensor.has_storage() || !same_window(weight.tensor, weight.host)) {
      return fmt::format("it was {}, now it is {}", described(weight.host),
                         described(weight.tensor));
    }
    for (const std::string& name : weight.tied) {
      const auto at = found.find(name);
      if (at != found.end() && at->second->has_storage() &&
          same_window(*at->second, weight.tensor)) {
        continue;
      }
      return fmt::format("it was the same tensor as '{}', which it is no longer", name);
    }
    return {};
  };
  for (ModuleWeight& weight : weights_) weight.misfit = misfit_of(weight);
  // Of two that are one tensor now, the program would go on with two values.
  for (ModuleWeight& weight : weights_) {
    if (!weight.to_send || !weight.misfit.empty()) continue;
    for (const ModuleWeight& other : weights_) {
      if (&other != &weight && other.misfit.empty() && share_memory(weight.host, other.host)) {
        weight.misfit = fmt::format("it shares memory with '{}', which it did not", other.name);
      }
    }
  }
}

void ModuleWeights::check_fit() const {
  for (const ModuleWeight& weight : weights_) {
    check(weight.misfit.empty(),
          "{} '{}' changed after the model was compiled: {}; call destroy() to compile it anew for "
          "the module as it is now",
          spoken(weight.kind), weight.name, weight.misfit);
  }
}

}  // namespace tessera
