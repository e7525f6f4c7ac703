#include "tessera/api/model.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace tessera {

std::vector<ModuleClass> detail::module_classes(const torch::nn::Module& module) {
  std::vector<ModuleClass> classes;
  for (const auto& item : module.named_modules()) {
    classes.push_back({item.key(), item.value()->name()});
  }
  return classes;
}

at::Tensor identity_loss(const at::Tensor& x, LossReduction reduction) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("poptorch::identity_loss", "")
                             .typed<at::Tensor(const at::Tensor&, int64_t)>();
  return op.call(x, static_cast<int64_t>(reduction));
}

}  // namespace tessera
