#include "tessera/api/model.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace tessera {

at::Tensor identity_loss(const at::Tensor& x, LossReduction reduction) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("poptorch::identity_loss", "")
                             .typed<at::Tensor(const at::Tensor&, int64_t)>();
  return op.call(x, static_cast<int64_t>(reduction));
}

}  // namespace tessera
