#include "tessera/backend/cpu/value_check.h"

#include <cmath>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/ops/forms.h"

namespace tessera::cpu {
namespace {

// Masks are filled with infinities on purpose.
bool writes_infinity(const Attrs& attrs) {
  for (const auto& [name, attr] : attrs) {
    const auto* value = std::get_if<double>(&attr);
    if (value && std::isinf(*value)) return true;
  }
  return false;
}

// The operator as the user wrote it: a program rounds its result to halves in a call of its own.
std::string operator_of(const Graph& graph, const Call& call) {
  if (!call.node.valid() || !is_conversion(call.op)) return call.op;
  const Node& conversion = graph.node(call.node);
  const Node* before = graph.producer(conversion.operands[0]);
  const bool rounds = graph.type(conversion.results[0]).dtype == DType::f16;
  return before && rounds ? before->op + ", rounded to float16," : call.op;
}

template <typename T, typename Look>
void for_each_element(const TensorView& view, const Look& look) {
  std::vector<int64_t> index(view.sizes.size(), 0);
  const int64_t count = view.numel();
  const T* at = view.as<const T>();
  for (int64_t i = 0; i < count; ++i) {
    look(*at);
    for (size_t d = view.sizes.size(); d-- > 0;) {
      at += view.strides[d];
      if (++index[d] < view.sizes[d]) break;
      at -= view.strides[d] * view.sizes[d];
      index[d] = 0;
    }
  }
}

}  // namespace

ValueCheck::ValueCheck(const Graph& graph, const Call& call, std::span<const TensorView> inputs)
    : graph_(graph), call_(call), before_(find(inputs)) {}

ValueCheck::Found ValueCheck::find(std::span<const TensorView> views) {
  Found found;
  const auto look = [&](float value) {
    found.nan = found.nan || std::isnan(value);
    found.infinity = found.infinity || std::isinf(value);
  };
  for (const TensorView& view : views) {
    if (!view.present) continue;
    if (view.dtype == DType::f32) for_each_element<float>(view, look);
    if (view.dtype == DType::f16) {
      for_each_element<Half>(view, [&](Half half) { look(to_float(half)); });
    }
  }
  return found;
}

void ValueCheck::look_at(std::span<const TensorView> outputs) const {
  const Found after = find(outputs);
  check(before_.nan || !after.nan,
        "floating point exception: {} made a NaN of values that are none, by an invalid operation "
        "such as 0/0, inf - inf, 0 * inf or the root of a negative number",
        operator_of(graph_, call_));
  check(before_.infinity || before_.nan || !after.infinity || writes_infinity(call_.attrs),
        "floating point exception: {} made an infinite value of finite ones, by an overflow or a "
        "division by zero",
        operator_of(graph_, call_));
}

}  // namespace tessera::cpu
