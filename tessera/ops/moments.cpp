// Means and variances over dimensions, in one pass.
#include <algorithm>
#include <cmath>

#include "tessera/kernels/reduce.h"
#include "tessera/ops/reduce_parts.h"

namespace tessera::reduce_parts {
namespace {

using namespace row_parts;

// Count, mean and sum of squared distances from it, from sums around the first element met: nothing
// cancels that the data itself does not lose.
struct Moments {
  struct Acc {
    double origin = 0, sum = 0, squares = 0;
    int64_t count = 0;
  };
  Acc start() const { return {}; }
  template <typename T>
  void step(Acc& acc, T x, int64_t) const {
    // No distance from infinity is a number.
    if (acc.count == 0 && std::isfinite(static_cast<double>(x)))
      acc.origin = static_cast<double>(x);
    const double distance = static_cast<double>(x) - acc.origin;
    acc.sum += distance;
    acc.squares += distance * distance;
    ++acc.count;
  }
  void join(Acc& left, const Acc& right) const {
    if (right.count == 0) return;
    if (left.count == 0) {
      left = right;
      return;
    }
    const auto count = static_cast<double>(right.count);
    const double shift = right.origin - left.origin;
    left.sum += right.sum + count * shift;
    left.squares += right.squares + 2 * shift * right.sum + count * shift * shift;
    left.count += right.count;
  }

  static double mean(const Acc& acc) {
    return acc.origin + acc.sum / static_cast<double>(acc.count);
  }
  static double variance(const Acc& acc, int64_t correction) {
    const auto count = static_cast<double>(acc.count);
    const double squares = acc.squares - acc.sum * acc.sum / count;
    const auto freedom = static_cast<double>(std::max<int64_t>(acc.count - correction, 0));
    return (squares < 0 ? 0 : squares) / freedom;
  }
};

std::vector<TensorType> infer_two_floating(const OpView& op) {
  const TensorType type = infer_floating(op)[0];
  return {type, type};
}

// Variance, or its root; the mean goes to a second result where there is one.
template <bool root>
void run_variance(const KernelCall& call) {
  const int64_t correction = call.attrs.integer("correction");
  const auto dims = folded_dims(call.attrs, call.inputs[0].rank());
  auto* variances = call.outputs[0].as<float>();
  float* means = call.outputs.size() > 1 ? call.outputs[1].as<float>() : nullptr;
  reduce<float>(call.pool, call.inputs[0], dims, Moments{}, [&](int64_t i, const auto& acc) {
    const double variance = Moments::variance(acc, correction);
    variances[i] = static_cast<float>(root ? std::sqrt(variance) : variance);
    if (means) means[i] = static_cast<float>(Moments::mean(acc));
  });
}

void run_moments(const KernelCall& call) {
  const auto dims = folded_dims(call.attrs, call.inputs[0].rank());
  auto* means = call.outputs[0].as<float>();
  auto* variances = call.outputs[1].as<float>();
  reduce<float>(call.pool, call.inputs[0], dims, Moments{}, [&](int64_t i, const auto& acc) {
    means[i] = static_cast<float>(Moments::mean(acc));
    variances[i] = static_cast<float>(Moments::variance(acc, 0));
  });
}

}  // namespace

std::vector<OpDef> moment_rows() {
  const AttrSpec dims = ints("dim", {});
  const AttrSchema statistics = {dims, integer("correction", 1), flag("keepdim", false)};
  const std::string spread = "self | dim, correction, keepdim";
  return {
      reduction({"var",
                 "out",
                 "variance, over the count less the correction",
                 statistics,
                 {{"var.correction", spread}},
                 infer_floating,
                 run_variance<false>,
                 Types::floats}),
      reduction({"std",
                 "out",
                 "standard deviation, over the count less the correction",
                 statistics,
                 {{"std.correction", spread}},
                 infer_floating,
                 run_variance<true>,
                 Types::floats}),
      reduction({"var_mean",
                 "var, mean",
                 "variance and mean",
                 statistics,
                 {{"var_mean.correction", spread}},
                 infer_two_floating,
                 run_variance<false>,
                 Types::floats}),
      reduction({"std_mean",
                 "std, mean",
                 "standard deviation and mean",
                 statistics,
                 {{"std_mean.correction", spread}},
                 infer_two_floating,
                 run_variance<true>,
                 Types::floats}),
      reduction({"moments",
                 "mean, var",
                 "mean and biased variance; made by the CPU's lowering for batch norms",
                 {dims},
                 {},
                 infer_two_floating,
                 run_moments,
                 Types::floats}),
  };
}

}  // namespace tessera::reduce_parts
