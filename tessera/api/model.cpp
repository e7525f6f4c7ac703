#include "tessera/api/model.h"

#include <mutex>
#include <unordered_set>

#include "tessera/api/spoken.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/dispatch.h"
#include "tessera/torch/own_operators.h"

namespace tessera {
namespace {

std::mutex claims_mutex;
std::unordered_set<const torch::nn::Module*>& claims() {
  static auto* modules = new std::unordered_set<const torch::nn::Module*>;
  return *modules;
}

}  // namespace

detail::TrainingClaim::TrainingClaim(const torch::nn::Module* module) : module_(module) {
  const std::lock_guard lock(claims_mutex);
  check(claims().insert(module).second, ErrorKind::runtime,
        "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy() on the "
        "model to unwrap before wrapping again");
}

detail::TrainingClaim::~TrainingClaim() {
  const std::lock_guard lock(claims_mutex);
  claims().erase(module_);
}

std::vector<ModuleClass> detail::module_classes(const torch::nn::Module& module) {
  std::vector<ModuleClass> classes;
  for (const auto& item : module.named_modules()) {
    classes.push_back({item.key(), item.value()->name()});
  }
  return classes;
}

at::Tensor identity_loss(const at::Tensor& x, LossReduction reduction) {
  return call_own("identity_loss", {x, static_cast<int64_t>(reduction)})[0];
}

MultiConv& MultiConv::partialsTypes(std::vector<at::ScalarType> types) {
  for (const at::ScalarType type : types) {
    check(type == at::kFloat || type == at::kHalf, ErrorKind::value,
          "partialsTypes takes torch.float or torch.half, not {}", spoken_type(type));
  }
  types_ = std::move(types);
  return *this;
}

void MultiConv::run(const std::function<void()>& work) const {
  if (!is_capturing()) return work();
  Recorder& recorder = *current_recorder();
  recorder.begin_multi_conv();
  try {
    work();
  } catch (...) {
    recorder.forget_multi_conv();
    throw;
  }
  std::vector<DType> partials;
  for (const at::ScalarType type : types_) partials.push_back(dtype_of(type));
  recorder.end_multi_conv(partials);
}

}  // namespace tessera
