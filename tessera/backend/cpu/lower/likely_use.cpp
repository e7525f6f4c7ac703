#include "tessera/backend/cpu/lower/likely_use.h"

#include "tessera/ops/forms.h"

namespace tessera::cpu {

KernelOperand likely_operand(const Graph& graph, ValueId value) {
  if (!value.valid()) return {DType::f32, {}, false, {}};
  const Node* producer = graph.producer(value);
  const bool view = producer && is_view(*producer);
  const TensorType& type = graph.type(value);
  return {type.dtype, from_first(view ? geometry_of_view(*producer) : dense(type.shape))};
}

}  // namespace tessera::cpu
