// Walks the operator table: every ATen spelling of every row, forward and backward, through capture
// and the engine, against PyTorch's own kernels. Operators that PyTorch does not have run against
// their own reference kernels here; recurrent_test compares what is made of them.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tessera/api/model.h"
#include "tessera/passes/add_optimizer.h"
#include "tests/torch_parity/table_call.h"
#include "tests/torch_parity/table_run.h"

namespace tessera {
namespace {

bool close(const at::Tensor& ours, const at::Tensor& theirs) {
  const at::Tensor a = ours.to(at::kDouble);
  // Through float32, so that what float64 can still hold overflows as it should.
  const at::Tensor b = theirs.detach().to(at::kFloat).to(at::kDouble);
  if (a.sizes() != b.sizes()) return false;
  if (b.numel() == 0) return true;
  const at::Tensor ordinary = at::where(b.abs() < 1e30, b, at::zeros_like(b));
  const double scale = ordinary.abs().max().item<double>();
  return at::allclose(a, b, 2e-5, 2e-6 * std::max(scale, 0.05), /*equal_nan=*/true);
}

// Float32's own rounding may be larger than ours: then float64 decides.
bool as_close_as(const at::Tensor& ours, const at::Tensor& theirs,
                 const std::function<at::Tensor()>& exact) {
  return close(ours, theirs) || close(ours, exact());
}

// One call, by PyTorch and by us.
struct Trial {
  const OpDef& row;
  const AtenSpelling& spelling;
  const Call& call;
  Layout layout;

  std::vector<at::Tensor> inputs = {}, theirs = {}, own = {};
  std::vector<NamedTensor> named = {};

  // False where PyTorch refuses the call.
  bool run_theirs(bool differentiate) {
    inputs = leaves_of(call, differentiate, layout);
    try {
      theirs = invoke(call, inputs);
    } catch (const std::exception&) {
      // Not differentiable in every operand, or not made for this type or layout.
      for (size_t i = 1; i < inputs.size(); ++i) inputs[i] = inputs[i].detach();
      try {
        theirs = invoke(call, inputs);
      } catch (const std::exception&) {
        return false;
      }
    }
    if (only_first_result_matters.contains(spelling.overload)) theirs.resize(1);
    own = leaves_of(call, false, layout);
    for (size_t i = 0; i < own.size(); ++i) {
      own[i] = own[i].detach().requires_grad_(inputs[i].requires_grad());
      named.push_back({fmt::format("x{}", i), own[i]});
    }
    return true;
  }

  void compare_results() {
    CaptureRequest request;
    request.parameters = named;
    std::vector<at::Tensor> fakes;
    request.forward = [&](const std::vector<at::Tensor>&) {
      fakes = invoke(call, own);
      fakes.resize(std::min(fakes.size(), theirs.size()));
      return fakes;
    };
    Capture captured;
    std::vector<at::Tensor> ours;
    ASSERT_NO_THROW(captured = capture(request));
    const auto places = captured.outputs;
    ASSERT_EQ(places.size(), theirs.size());
    for (size_t i = 0; i < theirs.size(); ++i) {
      EXPECT_EQ(fakes[i].scalar_type(), theirs[i].scalar_type()) << "type of result " << i;
      EXPECT_EQ(fakes[i].sizes(), theirs[i].sizes()) << "shape of result " << i;
    }
    ASSERT_NO_THROW(ours = run(std::move(captured)));
    for (size_t i = 0; i < theirs.size(); ++i) {
      const at::Tensor mine = places[i].graph_output < 0
                                  ? places[i].constant
                                  : ours[static_cast<size_t>(places[i].graph_output)];
      const auto exact = [&] { return invoke(call, in_double(own))[i]; };
      EXPECT_TRUE(as_close_as(mine, theirs[i], exact))
          << "result " << i << "\nours\n"
          << mine.flatten().slice(0, 0, 20) << "\nPyTorch\n"
          << theirs[i].flatten().slice(0, 0, 20);
    }
  }

  void compare_gradients() {
    const at::Tensor total = mixture(theirs);
    if (!total.defined()) return;
    try {
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
    ASSERT_NO_THROW(captured = capture(request));
    std::vector<std::string> names;
    for (const auto& output : captured.graph.outputs()) names.push_back(output.name);
    ASSERT_NO_THROW(ours = run(std::move(captured)));
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto at = std::find(names.begin(), names.end(), gradient_name(named[i].name));
      if (at == names.end()) {
        EXPECT_FALSE(inputs[i].grad().defined()) << "no gradient for operand " << i;
        continue;
      }
      const auto exact = [&] {
        const auto wide = in_double(own);
        torch::autograd::backward({mixture(invoke(call, wide))}, {});
        return wide[i].grad();
      };
      const at::Tensor& mine = ours[static_cast<size_t>(at - names.begin())];
      EXPECT_TRUE(as_close_as(mine, inputs[i].grad(), exact))
          << "gradient of operand " << i << "\nours\n"
          << mine.flatten().slice(0, 0, 20) << "\nPyTorch\n"
          << inputs[i].grad().flatten().slice(0, 0, 20);
    }
  }
};

class Table : public testing::TestWithParam<const OpDef*> {};

TEST_P(Table, FollowsPyTorch) {
  const OpDef& row = *GetParam();
  // Random numbers are its own; base/rng_test and the family's test look at their distribution.
  if (row.traits.reads_random_state) return;
  int tried = 0;
  for (const AtenSpelling& spelling : spellings_here(row)) {
    for (size_t s = 0; s < row.samples.size(); ++s) {
      for (const Layout layout :
           {Layout::dense, Layout::transposed, Layout::stepped, Layout::mixed}) {
        if (layout != Layout::dense && takes_dense_only(spelling)) continue;
        if (layout == Layout::mixed && row.samples[s].operands.size() < 2) continue;
        at::manual_seed(s + 1);
        const auto call = spelled(row, spelling, row.samples[s], layout);
        if (!call) continue;
        SCOPED_TRACE(
            fmt::format("{} sample {} layout {}", spelling.overload, s, static_cast<int>(layout)));
        const bool differentiate = !spelling.overload.ends_with("_") && !is_backward(spelling) &&
                                   spelling.hidden_mutations.empty() &&
                                   !has_no_derivative(spelling, row.samples[s]);
        Trial trial{row, spelling, *call, layout};
        if (!trial.run_theirs(differentiate)) continue;
        ++tried;
        trial.compare_results();
        if (!HasFatalFailure()) trial.compare_gradients();
      }
    }
  }
  EXPECT_TRUE(spellings_here(row).empty() || tried > 0) << "no sample can be spelled in ATen";
}

int64_t largest_operand(const Sample& sample) {
  int64_t largest = 0;
  for (const SampleOperand& operand : sample.operands) {
    largest = std::max(largest, numel(operand.type.shape));
  }
  return largest;
}

// Results for other samples than the row's own: forward only, and where PyTorch takes the call.
void compare_variant(const OpDef& row, const Sample& sample, const Tweak& tweak,
                     bool may_refuse = false) {
  for (const AtenSpelling& spelling : spellings_here(row)) {
    at::manual_seed(1);
    const auto call = spelled(row, spelling, sample, Layout::dense, tweak);
    if (!call) continue;
    SCOPED_TRACE(spelling.overload);
    Trial trial{row, spelling, *call, Layout::dense};
    if (!trial.run_theirs(false)) continue;
    if (may_refuse) {
      CaptureRequest request;
      request.parameters = trial.named;
      request.forward = [&](const std::vector<at::Tensor>&) { return invoke(*call, trial.own); };
      try {
        capture(request);
      } catch (const std::exception&) {
        continue;
      }
    }
    if (ties_have_no_order.contains(row.name)) trial.theirs.resize(1);
    trial.compare_results();
  }
}

// Small samples, at most a few: variants multiply.
std::vector<Sample> small_samples(const OpDef& row) {
  std::vector<Sample> samples;
  for (const Sample& sample : row.samples) {
    if (largest_operand(sample) <= 2000) samples.push_back(sample);
  }
  return samples;
}

// What PyTorch takes may be refused with a sentence, but never computed differently. Autograd never
// hands whole numbers to a backward kernel.
TEST_P(Table, TakesWholeNumbersAndBools) {
  const OpDef& row = *GetParam();
  if (row.traits.reads_random_state || row.name.find("backward") != std::string::npos) return;
  for (const Sample& sample : small_samples(row)) {
    for (const auto type : {at::kLong, at::kInt, at::kShort, at::kChar, at::kByte, at::kBool}) {
      SCOPED_TRACE(fmt::format("operands of type {}", c10::toString(type)));
      compare_variant(row, sample, {.types = {type}}, /*may_refuse=*/true);
    }
    if (sample.operands.size() < 2) continue;
    for (const auto& types : {std::vector{at::kFloat, at::kLong},
                              {at::kLong, at::kFloat},
                              {at::kByte, at::kShort},
                              {at::kBool, at::kInt}}) {
      SCOPED_TRACE(fmt::format("operands of types {}, {}", c10::toString(types[0]),
                               c10::toString(types[1])));
      compare_variant(row, sample, {.types = types}, /*may_refuse=*/true);
    }
  }
}

TEST_P(Table, MeetsOddValues) {
  const OpDef& row = *GetParam();
  if (row.traits.reads_random_state || odd_values_undefined.contains(row.name)) return;
  if (row.name == "softshrink" && compat::torch_version < 200) return;  // it made zeros of NaN
  for (Sample sample : small_samples(row)) {
    compare_variant(row, sample, {.odd = true});
    // More of them, where operands have one shape.
    const auto like_first = [&](const SampleOperand& operand) {
      return operand.type.shape == sample.operands[0].type.shape;
    };
    const bool alike = std::all_of(sample.operands.begin(), sample.operands.end(), like_first);
    if (row.kind != Kind::elementwise || !alike) continue;
    for (SampleOperand& operand : sample.operands) operand.type.shape = {23, 11};
    compare_variant(row, sample, {.odd = true});
  }
}

// PyTorch crashes there, reads memory that nobody wrote, or gives shapes that its own rules
// exclude.
const Names nothing_undefined = {"aminmax",
                                 "convolution",
                                 "batch_norm",
                                 "batch_norm_backward",
                                 "weight_norm",
                                 "weight_norm_backward",
                                 "multi_margin_loss",
                                 "multilabel_margin_loss_forward",
                                 "multilabel_margin_loss_backward",
                                 "pixel_unshuffle",
                                 "embedding_bag_backward",
                                 "embedding_bag_weights_backward",
                                 "unfold_backward"};

TEST_P(Table, TakesScalarsAndEmptyTensors) {
  const OpDef& row = *GetParam();
  if (row.traits.reads_random_state || nothing_undefined.contains(row.name)) return;
  for (const Sample& sample : small_samples(row)) {
    if (sample.operands.empty()) continue;
    Sample scalars = sample;
    for (SampleOperand& operand : scalars.operands) operand.type.shape = {};
    if (const Attr* dim = scalars.attrs.find("dim")) {
      const bool single = std::holds_alternative<int64_t>(*dim);
      scalars.attrs.set("dim", single ? Attr(int64_t{-1}) : Attr(std::vector<int64_t>{0}));
    }
    {
      SCOPED_TRACE("scalars");
      compare_variant(row, scalars, {});
    }
    const Shape sizes = sample.operands[0].type.shape;
    for (const int64_t size : std::set<int64_t>(sizes.begin(), sizes.end())) {
      Sample empty = sample;
      for (SampleOperand& operand : empty.operands) {
        std::replace(operand.type.shape.begin(), operand.type.shape.end(), size, int64_t{0});
      }
      SCOPED_TRACE(fmt::format("dimensions of size {} empty", size));
      compare_variant(row, empty, {}, /*may_refuse=*/true);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, Table, testing::ValuesIn(all_ops()),
                         [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace tessera
