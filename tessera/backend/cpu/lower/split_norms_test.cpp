#include "tessera/backend/cpu/lower/split_norms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tessera/backend/cpu/engine.h"
#include "tessera/backend/cpu/lower/lower.h"
#include "tessera/backend/cpu/lower/rewrite_cases_for_test.h"
#include "tessera/backend/cpu/target_for_test.h"
#include "tessera/base/cpu_level_for_test.h"
#include "tessera/ops/builder.h"

namespace tessera::cpu {
namespace {

TEST(SplitNorms, BecomesWhatIsExpected) {
  for (const RewriteCase& one : rewrite_cases("split_norms.ir")) {
    SCOPED_TRACE(one.name);
    const Graph graph = split_norms(one.before);
    verify(graph);
    EXPECT_EQ(print(graph), print(one.after));
  }
}

using Values = std::vector<std::vector<float>>;

// Outputs of two steps on random data, then the states.
Values run(const Graph& graph, const LowerOptions& options) {
  ThreadPool pool(1, level_for_test());
  const Plan plan = lower(graph, on_test_target(options));
  Engine engine(plan, pool);
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(0.5, 2);
  Values values;
  const auto keep = [&](const std::byte* from, int64_t count) {
    const auto* data = reinterpret_cast<const float*>(from);
    values.emplace_back(data, data + count);
  };
  const auto count_of = [&](ValueId value) { return numel(graph.type(value).shape); };
  for (size_t i = 0; i < graph.states().size(); ++i) {
    auto* data = reinterpret_cast<float*>(engine.state(i).data);
    for (int64_t k = 0; k < count_of(graph.states()[i].initial); ++k) data[k] = uniform(random);
  }
  for (int step = 0; step < 2; ++step) {
    Values inputs;
    for (const Input& input : graph.inputs()) {
      auto& data = inputs.emplace_back(static_cast<size_t>(count_of(input.value)));
      for (float& value : data) value = uniform(random);
      engine.set_data_input(inputs.size() - 1, reinterpret_cast<const std::byte*>(data.data()));
    }
    engine.run_micro_batch({});
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
      EXPECT_TRUE(engine.output(i).contiguous());
      keep(engine.output(i).data, count_of(graph.outputs()[i].value));
    }
    engine.run_update({});
  }
  for (size_t i = 0; i < graph.states().size(); ++i) {
    keep(engine.state(i).data, count_of(graph.states()[i].initial));
  }
  return values;
}

// Forward and backward of one norm with everything it has to give.
Graph norm_graph(const Shape& shape, bool training) {
  Graph graph;
  const TensorType images{DType::f32, shape}, per_channel{DType::f32, {shape[1]}};
  const ValueId x = graph.add_input(InputKind::data, "x", images);
  const ValueId grad = graph.add_input(InputKind::data, "grad", images);
  const ValueId weight = graph.add_state(StateKind::parameter, "weight", per_channel);
  const ValueId bias = graph.add_state(StateKind::parameter, "bias", per_channel);
  const ValueId mean = graph.add_state(StateKind::buffer, "mean", per_channel);
  const ValueId var = graph.add_state(StateKind::buffer, "var", per_channel);
  Builder b(graph);
  const auto out = b.add_all("batch_norm", {x, weight, bias, mean, var}, {{"training", training}});
  const auto grads = b.add_all(
      "batch_norm_backward",
      {grad, x, weight, mean, var, training ? out[1] : ValueId{}, training ? out[2] : ValueId{}},
      {{"train", training}});
  for (size_t i = 0; training && i < 2; ++i) {
    State& state = graph.states()[2 + i];
    state.after_micro_batch = state.after_update = out[3 + i];
  }
  graph.add_output("out", out[0]);
  for (const ValueId value : grads) graph.add_output("grad", value);
  return graph;
}

TEST(SplitNorms, MeansTheSameAsTheWholeNorm) {
  for (const Shape& shape :
       std::vector<Shape>{{4, 5, 6, 7}, {8, 16}, {3, 4, 9}, {2, 3, 4, 5, 6}, {2, 8, 40, 40}}) {
    for (const bool training : {true, false}) {
      SCOPED_TRACE(tessera::to_string(shape));
      const Graph graph = norm_graph(shape, training);
      const Values whole = run(graph, {.rewrites = {.disabled = {"split_norms"}}});
      const Values parts = run(graph, {});
      ASSERT_EQ(whole.size(), parts.size());
      for (size_t i = 0; i < whole.size(); ++i) {
        float largest = 0;
        for (const float value : whole[i]) largest = std::max(largest, std::abs(value));
        for (size_t k = 0; k < whole[i].size(); ++k) {
          ASSERT_NEAR(whole[i][k], parts[i][k], 1e-5 * largest) << i << " " << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::cpu
