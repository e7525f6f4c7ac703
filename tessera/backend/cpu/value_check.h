// Finds the call in which a program's values stop being finite, as a device that raises exceptions
// for overflow, division by zero and invalid operations would. It looks at values, not at the
// CPU's flags: kernels compute lanes that nobody reads, and those raise flags too.
#pragma once

#include <span>

#include "tessera/backend/cpu/plan.h"
#include "tessera/base/tensor_view.h"

namespace tessera::cpu {

class ValueCheck {
 public:
  // Before the call: results may take the operands' place.
  ValueCheck(const Graph& graph, const Call& call, std::span<const TensorView> inputs);

  // After it. Error where there is a NaN and was none, or an infinity that no operand had and that
  // the program did not write there.
  void look_at(std::span<const TensorView> outputs) const;

 private:
  struct Found {
    bool nan = false, infinity = false;
  };
  static Found find(std::span<const TensorView> views);

  const Graph& graph_;
  const Call& call_;
  Found before_;
};

}  // namespace tessera::cpu
