// Loss scaling: backward begins with a factor that lifts gradients into the range of half
// precision, and add_optimizer divides them by it again.
//
// The factor is the input `loss_scaling`, so that another one never compiles again. Where the
// program finds it itself, it is multiplied by the state `lossScaleUpdateFactor`: the elements of
// half-precision gradients that are near the end of their range are counted, and the factor is
// halved where there are too many, else doubled.
#pragma once

#include <cstdint>

#include "tessera/ir/graph.h"

namespace tessera {

struct ScaleLossSpec {
  bool scaled = true;  // else only counts
  bool automatic = false;
  int64_t gradient_accumulation = 1;
  // Which gradients automatic scaling looks at: those of products and convolutions, or all.
  bool products_only = false;
  double edge = 0.125;      // of the range, from where elements count
  bool statistics = false;  // count what overflows and underflows
};

struct LossScale {
  ValueId final_scale;       // f32[]: what the loss's gradient was multiplied with
  ValueId divisor;           // f32[]: the same as it came out in the loss's type
  ValueId above;             // f32[]: elements beyond the edge in this update so far
  int64_t counted = 0;       // elements that were looked at for it in an update
  bool of_half = false;      // the loss is f16
  ValueId overflowed = {};   // f32[]: elements of this micro-batch that are not finite
  ValueId underflowed = {};  // f32[]: ... that are not zero and below the normal halves
};

// Whether backward computes anything in half precision on its way to the gradients, which are the
// outputs that capture names so. `loss_gradient`, a value of ones, is where it begins.
bool has_half_gradients(const Graph& graph, ValueId loss_gradient);

// Renumbers the graph's values; `loss` follows.
LossScale scale_loss(Graph& graph, const ScaleLossSpec& spec, ValueId loss_gradient, ValueId& loss);

struct LossScaleRule {
  double proportion = 1e-7;  // more elements than this beyond the edge are too many
  int64_t period = 1;        // updates between two changes
  int64_t replicas = 1;      // whose elements are counted together
  // The scale is not doubled beyond: it is to be a number of the loss's type, and gradients that
  // are zero for a time must not lift it without end.
  double greatest_of_half = 32768, greatest = 16777216;
};

// After all updates: the next `lossScaleUpdateFactor` of an automatic scale.
void add_loss_scale_update(Graph& graph, const LossScale& scale, const LossScaleRule& rule);

// The state's name; it begins as one.
inline constexpr std::string_view loss_scale_factor_name = "lossScaleUpdateFactor";

}  // namespace tessera
