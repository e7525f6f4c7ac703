// Walks the operator table in half precision: every ATen spelling of every row, over halves and
// over halves beside floats, forward and backward, through capture and the engine, against PyTorch
// in float64 over the same numbers. An operator computes in float32 and rounds once, so that a
// result is off by half the distance of halves, and by what float32 is off; table_test says how
// much that is. What PyTorch's CPU kernels know of halves does not matter here: they run none.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>

#include "tessera/api/model.h"
#include "tessera/passes/add_optimizer.h"
#include "tests/torch_parity/table_call.h"
#include "tests/torch_parity/table_run.h"

namespace tessera {
namespace {

using OperandTypes = std::vector<at::ScalarType>;

constexpr double half_overflows_at = 65520;

// Their derivatives compute with what is larger than the gradient, or where small changes matter:
// so many times the usual roundings are allowed.
const std::map<std::string, double> rounded_more = {{"mul", 8},   {"pow", 8},       {"_softmax", 8},
                                                    {"erfcx", 8}, {"log_ndtr", 32}, {"sinc", 8}};

// PyTorch's own formulas for these derivatives refuse halves.
const Names no_derivative_in_half = {"logcumsumexp", "i1", "i1e"};

// What is kept for a gradient is kept in float32; and an argument says the type of a gradient.
const Names own_types = {"batch_norm", "layer_norm", "group_norm", "_softmax_backward_data",
                         "_log_softmax_backward_data"};

// Where PyTorch gives the type of one operand, because its kernel forgets to refuse others or, from
// 2 on, computes in place: here they are promoted.
const Names promoted_anyway = {"baddbmm", "addmv", "trilinear", "binary_cross_entropy_with_logits"};

// The distance of halves around each number.
at::Tensor spacing(const at::Tensor& numbers) {
  const at::Tensor exponent = at::floor(at::log2(at::clamp_min(numbers.abs(), std::ldexp(1, -14))));
  return at::exp2(exponent - 10);
}

// The largest of those that halves can hold.
double largest(const at::Tensor& numbers) {
  if (numbers.numel() == 0) return 0;
  const at::Tensor held = numbers.abs() < half_overflows_at;
  return at::where(held, numbers, at::zeros_like(numbers)).abs().max().item<double>();
}

// What float32 may be off, as table_test has it.
at::Tensor off_in_single(const at::Tensor& exact) {
  return exact.abs() * 2e-5 + 2e-6 * std::max(largest(exact), 0.05);
}

// Elements of `ours` that are not `exact` and off by more than is allowed; where both are not
// numbers, they agree. From `overflow` on a half may be infinite.
std::string wrong(const at::Tensor& ours, const at::Tensor& exact, const at::Tensor& allowed,
                  double overflow = half_overflows_at) {
  const at::Tensor a = ours.to(at::kDouble), b = exact.detach().to(at::kDouble);
  if (a.sizes() != b.sizes()) return fmt::format("{} elements, not {}", a.numel(), b.numel());
  at::Tensor fine = a.eq(b).logical_or((a - b).abs().le(allowed));
  fine = fine.logical_or(a.isnan().logical_and(b.isnan()));
  if (ours.scalar_type() == at::kHalf) {
    const at::Tensor beyond = (b.abs() >= overflow * (1 - 1e-3)).logical_and(a.sign().eq(b.sign()));
    fine = fine.logical_or(beyond.logical_and(a.abs() >= 65472));
  }
  const at::Tensor places = fine.logical_not().flatten().nonzero().flatten();
  std::string text;
  for (int64_t k = 0; k < std::min<int64_t>(5, places.numel()); ++k) {
    const auto i = places[k].item<int64_t>();
    text += fmt::format("  element {} of {}: {}, not {}\n", i, a.numel(),
                        a.flatten()[i].item<double>(), b.flatten()[i].item<double>());
  }
  return text;
}

std::string not_rounded_once(const at::Tensor& ours, const at::Tensor& exact) {
  const at::Tensor b = exact.detach().to(at::kDouble);
  if (!exact.is_floating_point()) return wrong(ours, exact, at::zeros({}, at::kDouble));
  at::Tensor allowed = off_in_single(b);
  if (ours.scalar_type() == at::kHalf) allowed = allowed + spacing(b) / 2;
  return wrong(ours, exact, allowed);
}

// Derivatives are formulas of several operators, over results that were rounded: each rounds by as
// much as its values are large, and may overflow before it is multiplied by what mixture() makes.
std::string not_rounded_a_few_times(const at::Tensor& ours, const at::Tensor& exact, double times) {
  const at::Tensor b = exact.detach().to(at::kDouble);
  const double size = std::max(largest(b), 0.05);
  const at::Tensor allowed = off_in_single(b) + spacing(b) + size * std::ldexp(4, -11);
  return wrong(ours, exact, allowed * times, half_overflows_at / 8);
}

at::ScalarType wider(at::ScalarType type) {
  return type == at::kHalf ? at::kFloat : type == at::kFloat ? at::kDouble : type;
}

std::vector<at::Tensor> widened(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> wide;
  for (const at::Tensor& t : tensors) wide.push_back(t.detach().to(wider(t.scalar_type())));
  return wide;
}

struct HalfTrial {
  const OpDef& row;
  const Call& call;

  std::vector<at::Tensor> own = {}, exact = {};
  std::vector<NamedTensor> named = {};
  std::vector<std::optional<at::ScalarType>> types = {};  // of results, where PyTorch says them

  // False where PyTorch refuses the call over float64 too.
  bool run_theirs(bool differentiate) {
    own = leaves_of(call, differentiate, Layout::dense);
    try {
      exact = invoke(call, in_double(own));
    } catch (const std::exception&) {
      for (size_t i = 1; i < own.size(); ++i) own[i] = own[i].detach();
      try {
        exact = invoke(call, in_double(own));
      } catch (const std::exception&) {
        return false;
      }
    }
    for (const at::Tensor& tensor : own) {
      named.push_back({fmt::format("x{}", named.size()), tensor});
    }
    types.resize(exact.size());
    try {
      // One size up, PyTorch has kernels: what is half here is float there.
      const auto above = invoke(call, widened(own));
      for (size_t i = 0; i < above.size(); ++i) {
        const auto type = above[i].scalar_type();
        const bool as_asked = type == exact[i].scalar_type() && type != at::kDouble;
        types[i] = as_asked || type == at::kLong ? type
                   : type == at::kDouble         ? at::kFloat
                   : type == at::kFloat          ? at::kHalf
                                                 : type;
      }
    } catch (const std::exception&) {
    }
    return true;
  }

  void compare_results(bool may_refuse) {
    CaptureRequest request;
    request.parameters = named;
    std::vector<at::Tensor> fakes;
    request.forward = [&](const std::vector<at::Tensor>&) {
      fakes = invoke(call, own);
      fakes.resize(std::min(fakes.size(), exact.size()));
      return fakes;
    };
    Capture captured;
    try {
      captured = capture(request);
    } catch (const std::exception& error) {
      EXPECT_TRUE(may_refuse) << "refused: " << error.what();
      return;
    }
    const auto places = captured.outputs;
    ASSERT_EQ(places.size(), exact.size());
    std::vector<at::Tensor> ours;
    ASSERT_NO_THROW(ours = run(std::move(captured)));
    for (size_t i = 0; i < exact.size(); ++i) {
      const at::Tensor mine = places[i].graph_output < 0
                                  ? places[i].constant
                                  : ours[static_cast<size_t>(places[i].graph_output)];
      if (!own_types.contains(row.name)) {
        EXPECT_EQ(fakes[i].scalar_type(), types[i].value_or(fakes[i].scalar_type()))
            << "type of result " << i;
      }
      EXPECT_EQ(not_rounded_once(mine, exact[i]), "") << "result " << i;
    }
  }

  void compare_gradients() {
    const auto wide = in_double(own);
    try {
      const at::Tensor total = mixture(invoke(call, wide));
      if (!total.defined()) return;
      torch::autograd::backward({total}, {});
    } catch (const std::exception&) {
      return;  // PyTorch has no derivative
    }
    CaptureRequest request;
    request.parameters = named;
    request.training = true;
    request.forward = [&](const std::vector<at::Tensor>&) {
      identity_loss(mixture(invoke(call, own)), LossReduction::none);
      return std::vector<at::Tensor>{};
    };
    Capture captured;
    std::vector<at::Tensor> ours;
    try {
      captured = capture(request);
    } catch (const std::exception& error) {
      EXPECT_TRUE(no_derivative_in_half.contains(row.name)) << "refused: " << error.what();
      return;
    }
    const auto more = rounded_more.find(row.name);
    const double times = more == rounded_more.end() ? 1 : more->second;
    std::vector<std::string> names;
    for (const auto& output : captured.graph.outputs()) names.push_back(output.name);
    ASSERT_NO_THROW(ours = run(std::move(captured)));
    for (size_t i = 0; i < wide.size(); ++i) {
      const auto at = std::find(names.begin(), names.end(), gradient_name(named[i].name));
      if (at == names.end()) {
        EXPECT_FALSE(wide[i].grad().defined()) << "no gradient for operand " << i;
        continue;
      }
      const at::Tensor& mine = ours[static_cast<size_t>(at - names.begin())];
      EXPECT_EQ(mine.scalar_type(), own[i].scalar_type()) << "type of gradient " << i;
      EXPECT_EQ(not_rounded_a_few_times(mine, wide[i].grad(), times), "")
          << "gradient of operand " << i;
    }
  }
};

class HalfTable : public testing::TestWithParam<const OpDef*> {};

void compare_sample(const OpDef& row, const Sample& sample, const Tweak& tweak, bool forward_only) {
  for (const AtenSpelling& spelling : spellings_here(row)) {
    const bool mixed = tweak.types.size() > 1;
    if (mixed && is_backward(spelling)) continue;  // compared as gradients
    at::manual_seed(1);
    const auto call = spelled(row, spelling, sample, Layout::dense, tweak);
    if (!call) continue;
    SCOPED_TRACE(spelling.overload);
    const bool differentiate = !forward_only && !spelling.overload.ends_with("_") &&
                               !is_backward(spelling) && spelling.hidden_mutations.empty() &&
                               !has_no_derivative(spelling, sample) &&
                               !ties_have_no_order.contains(row.name);
    HalfTrial trial{row, *call};
    if (!trial.run_theirs(differentiate)) continue;
    const bool first_only = only_first_result_matters.contains(spelling.overload) ||
                            ties_have_no_order.contains(row.name);
    if (first_only) trial.exact.resize(1);
    const bool refused_above = !trial.types.empty() && !trial.types[0];
    if (mixed && promoted_anyway.contains(row.name)) trial.types.assign(trial.types.size(), {});
    trial.compare_results(/*may_refuse=*/mixed && refused_above);
    if (differentiate && !testing::Test::HasFatalFailure() && !refused_above) {
      trial.compare_gradients();
    }
  }
}

void compare_samples(const OpDef& row, const OperandTypes& types) {
  for (size_t s = 0; s < row.samples.size(); ++s) {
    if (types.size() > row.samples[s].operands.size()) continue;
    SCOPED_TRACE(fmt::format("sample {}", s));
    compare_sample(row, row.samples[s], {.types = types, .half_scalars = true}, false);
  }
}

TEST_P(HalfTable, RoundsOnce) {
  const OpDef& row = *GetParam();
  if (row.traits.reads_random_state) return;
  compare_samples(row, {at::kHalf});
}

TEST_P(HalfTable, PromotesHalves) {
  const OpDef& row = *GetParam();
  if (row.traits.reads_random_state) return;
  compare_samples(row, {at::kHalf, at::kFloat});
  compare_samples(row, {at::kFloat, at::kHalf});
}

TEST_P(HalfTable, MeetsOddHalves) {
  const OpDef& row = *GetParam();
  if (row.traits.reads_random_state || odd_values_undefined.contains(row.name)) return;
  if (row.kind != Kind::elementwise) return;
  // PyTorch's kernels make zeros of NaN: these vectors' do, softshrink's did before version 2.
  if (row.name == "logit_backward") return;
  if (row.name == "softshrink" && compat::torch_version < 200) return;
  for (const Sample& sample : row.samples) {
    compare_sample(row, sample, {.types = {at::kHalf}, .odd = true, .half_scalars = true}, true);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, HalfTable, testing::ValuesIn(all_ops()),
                         [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace tessera
