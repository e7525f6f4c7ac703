#include "tessera/passes/add_optimizer.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"
#include "tessera/passes/read_graph.h"

namespace tessera {
namespace {

constexpr std::string_view captured = R"(graph "train" {
  input data "x" %0: f32[2]
  state parameter "a.w" %1: f32[2]
  state parameter "b" %2: f32[2]
  %3 = mul(%0, %1) : f32[2]
  %4 = mul(%0, %2) : f32[2]
  output "0" %3
  output "Gradient___a.w" %4
  output "Gradient___b" %3
}
)";

std::string with_optimizer(const UpdateSpec& spec) {
  Graph graph = read_graph(captured);
  add_optimizer(graph, spec);
  verify(graph);
  return print(graph);
}

TEST(AddOptimizer, UpdatesEachParameterOfAGroup) {
  EXPECT_EQ(with_optimizer({.groups = {{.parameters = {"a.w"}}}}), R"(graph "train" {
  input data "x" %0: f32[2]
  input hyperparameter "learning_rate.0" %1: f32[2]
  input hyperparameter "momentum.0" %2: f32[2]
  input hyperparameter "dampening.0" %3: f32[2]
  input hyperparameter "weight_decay.0" %4: f32[2]
  state parameter "a.w" %5: f32[2] update %9
  state parameter "b" %6: f32[2]
  %7 = mul(%0, %5) : f32[2]
  %8 = mul(%0, %6) : f32[2]
  update %9 = sgd(%5, %8, _, _, %1, %2, %3, %4) {nesterov = false} : f32[2] in "a"
  output "0" %7
}
)");
}

TEST(AddOptimizer, KeepsVelocitiesAndStepCounts) {
  const UpdateSpec spec{
      .groups = {{.parameters = {"a.w"}, .velocity = true, .attrs = {{"nesterov", true}}},
                 {.parameters = {"b"}, .velocity = true}}};
  EXPECT_EQ(with_optimizer(spec), R"(graph "train" {
  input data "x" %0: f32[2]
  input hyperparameter "learning_rate.0" %1: f32[2]
  input hyperparameter "momentum.0" %2: f32[2]
  input hyperparameter "dampening.0" %3: f32[2]
  input hyperparameter "weight_decay.0" %4: f32[2]
  input hyperparameter "learning_rate.1" %5: f32[2]
  input hyperparameter "momentum.1" %6: f32[2]
  input hyperparameter "dampening.1" %7: f32[2]
  input hyperparameter "weight_decay.1" %8: f32[2]
  state parameter "a.w" %9: f32[2] update %17
  state parameter "b" %10: f32[2] update %20
  state optimizer "Step___a.w" %11: f32[] update %18
  state optimizer "Accl___a.w" %12: f32[2] update %19
  state optimizer "Step___b" %13: f32[] update %21
  state optimizer "Accl___b" %14: f32[2] update %22
  %15 = mul(%0, %9) : f32[2]
  %16 = mul(%0, %10) : f32[2]
  update %17, %18, %19 = sgd(%9, %16, %11, %12, %1, %2, %3, %4) {nesterov = true} : f32[2], f32[], f32[2] in "a"
  update %20, %21, %22 = sgd(%10, %15, %13, %14, %5, %6, %7, %8) {nesterov = false} : f32[2], f32[], f32[2]
  output "0" %15
}
)");
}

TEST(AddOptimizer, NamesWhatOptimizersRemember) {
  const auto states = [](const char* op, bool velocity) {
    Graph graph = read_graph(captured);
    add_optimizer(graph, {.groups = {{.parameters = {"b"}, .op = op, .velocity = velocity}}});
    std::string names;
    for (const State& state : graph.states()) {
      if (state.kind != StateKind::optimizer) continue;
      EXPECT_NE(state.after_update, state.initial) << state.name;
      names += state.name + " ";
    }
    return names;
  };
  EXPECT_EQ(states("sgd", false), "");
  EXPECT_EQ(states("adam", false), "Step___b Accl1___b Accl2___b ");
  EXPECT_EQ(states("lamb", false), "Step___b Accl1___b Accl2___b ");
  EXPECT_EQ(states("rmsprop", false), "Step___b Accl1___b ");
  EXPECT_EQ(states("rmsprop", true), "Step___b Accl1___b Accl3___b ");
  EXPECT_EQ(states("rmsprop_centered", true), "Step___b Accl1___b Accl2___b Accl3___b ");
}

TEST(AddOptimizer, ClipsAllGradientsTogether) {
  const UpdateSpec spec{.gradient_accumulation = 4,
                        .clip_norm = true,
                        .groups = {{.parameters = {"b"}}, {.parameters = {"a.w"}}}};
  const std::string text = with_optimizer(spec);
  EXPECT_NE(text.find("input hyperparameter \"max_grad_norm\" %1: f32[2]"), std::string::npos);
  const size_t factor = text.find("clip_factor(%1, ");
  ASSERT_NE(factor, std::string::npos) << text;
  EXPECT_GT(factor, text.rfind("value = 0.25"));  // both means come before
  EXPECT_LT(factor, text.find("sgd("));
}

TEST(AddOptimizer, AccumulatesOverMicroBatches) {
  const UpdateSpec spec{.gradient_accumulation = 4, .groups = {{.parameters = {"b", "a.w"}}}};
  EXPECT_EQ(with_optimizer(spec), R"(graph "train" {
  input data "x" %0: f32[2]
  input hyperparameter "learning_rate.0" %1: f32[2]
  input hyperparameter "momentum.0" %2: f32[2]
  input hyperparameter "dampening.0" %3: f32[2]
  input hyperparameter "weight_decay.0" %4: f32[2]
  state parameter "a.w" %5: f32[2] update %20
  state parameter "b" %6: f32[2] update %16
  state accumulator "Accum___b" %7: f32[2] micro_batch %11 update %13
  state accumulator "Accum___a.w" %8: f32[2] micro_batch %12 update %17
  %9 = mul(%0, %5) : f32[2]
  %10 = mul(%0, %6) : f32[2]
  %11 = add(%7, %9) {alpha = 1.0} : f32[2] backward
  %12 = add(%8, %10) {alpha = 1.0} : f32[2] backward in "a"
  update %13 = fill() {dtype = f32, shape = [2], value = 0.0} : f32[2]
  update %14 = fill() {dtype = f32, shape = [], value = 0.25} : f32[]
  update %15 = mul(%11, %14) : f32[2]
  update %16 = sgd(%6, %15, _, _, %1, %2, %3, %4) {nesterov = false} : f32[2]
  update %17 = fill() {dtype = f32, shape = [2], value = 0.0} : f32[2] in "a"
  update %18 = fill() {dtype = f32, shape = [], value = 0.25} : f32[] in "a"
  update %19 = mul(%12, %18) : f32[2] in "a"
  update %20 = sgd(%5, %19, _, _, %1, %2, %3, %4) {nesterov = false} : f32[2] in "a"
  output "0" %9
}
)");
}

TEST(AddOptimizer, AddsGradientsUpWithoutMean) {
  const std::string text = with_optimizer(
      {.gradient_accumulation = 4, .mean_reduction = false, .groups = {{.parameters = {"b"}}}});
  EXPECT_EQ(text.find("update %14 = mul"), std::string::npos);
  EXPECT_EQ(text.find("0.25"), std::string::npos);
  EXPECT_NE(text.find("state accumulator \"Accum___b\""), std::string::npos);
}

TEST(AddOptimizer, AddsUpOverReplicas) {
  UpdateSpec spec{.gradient_accumulation = 2, .replicas = 4, .groups = {{.parameters = {"b"}}}};
  const auto has = [&](std::string_view part) {
    return with_optimizer(spec).find(part) != std::string::npos;
  };
  EXPECT_TRUE(has("{group_size = 0, mean = false, orthogonal = false} : f32[2]"));
  EXPECT_TRUE(has("value = 0.125"));  // of 2 x 4
  spec.running_mean = true;
  EXPECT_TRUE(has("value = 0.25"));  // over micro-batches it is a mean already
  spec.mean_reduction = false;
  EXPECT_TRUE(has("all_reduce") && !has("value = 0.25") && !has("value = 0.125"));
  spec.replica_groups = {{"b", {2, true}}};
  EXPECT_TRUE(has("{group_size = 2, mean = false, orthogonal = true}"));
  spec.replica_groups = {{"b", {1, false}}};
  EXPECT_FALSE(has("all_reduce"));
}

// As they are gathered.
TEST(AddOptimizer, HalvesTravelAsHalves) {
  UpdateSpec spec{.gradient_accumulation = 2,
                  .replicas = 4,
                  .groups = {{.parameters = {"b"}, .accumulator = DType::f16}}};
  EXPECT_NE(with_optimizer(spec).find("orthogonal = false} : f16[2]"), std::string::npos)
      << with_optimizer(spec);
  spec.gradient_accumulation = 1;
  EXPECT_NE(with_optimizer(spec).find("orthogonal = false} : f16[2]"), std::string::npos);
}

// Each journey costs a wait.
TEST(AddOptimizer, SmallGradientsTravelTogether) {
  const UpdateSpec both{.replicas = 2, .groups = {{.parameters = {"a.w", "b"}}}};
  EXPECT_NE(with_optimizer(both).find(" = all_reduce(%8, %7) "), std::string::npos)
      << with_optimizer(both);
  UpdateSpec apart = both;
  apart.replica_groups = {{"b", {1, false}}};
  EXPECT_NE(with_optimizer(apart).find(" = all_reduce(%8) "), std::string::npos);
}

TEST(AddOptimizer, ARunningMeanKeepsTheMeanSoFar) {
  EXPECT_EQ(
      with_optimizer(
          {.gradient_accumulation = 4, .running_mean = true, .groups = {{.parameters = {"b"}}}}),
      R"(graph "train" {
  input data "x" %0: f32[2]
  input hyperparameter "learning_rate.0" %1: f32[2]
  input hyperparameter "momentum.0" %2: f32[2]
  input hyperparameter "dampening.0" %3: f32[2]
  input hyperparameter "weight_decay.0" %4: f32[2]
  state parameter "a.w" %5: f32[2]
  state parameter "b" %6: f32[2] update %20
  state accumulator "Counter___microBatches" %7: f32[] micro_batch %12 update %18
  state accumulator "Accum___b" %8: f32[2] micro_batch %17 update %19
  %9 = mul(%0, %5) : f32[2]
  %10 = mul(%0, %6) : f32[2]
  %11 = fill() {dtype = f32, shape = [], value = 1.0} : f32[] backward
  %12 = add(%7, %11) {alpha = 1.0} : f32[] backward
  %13 = div(%7, %12) : f32[] backward
  %14 = reciprocal(%12) : f32[] backward
  %15 = mul(%8, %13) : f32[2] backward
  %16 = mul(%9, %14) : f32[2] backward
  %17 = add(%15, %16) {alpha = 1.0} : f32[2] backward
  update %18 = fill() {dtype = f32, shape = [], value = 0.0} : f32[]
  update %19 = fill() {dtype = f32, shape = [2], value = 0.0} : f32[2]
  update %20 = sgd(%6, %17, _, _, %1, %2, %3, %4) {nesterov = false} : f32[2]
  output "0" %9
}
)");
}

constexpr std::string_view captured_in_half = R"(graph "train" {
  input data "x" %0: f16[2]
  state parameter "w" %1: f16[2]
  %2 = mul(%0, %1) : f16[2]
  output "0" %2
  output "Gradient___w" %2
}
)";

// spec: 4.2 accum types
TEST(AddOptimizer, RoundsOnlyWhatIsStored) {
  Graph graph = parse(captured_in_half);
  add_optimizer(graph, {.gradient_accumulation = 4,
                        .groups = {{.parameters = {"w"},
                                    .op = "adam",
                                    .accumulator = DType::f16,
                                    .memories = {{"first_moment", DType::f16}}}}});
  verify(graph);
  EXPECT_EQ(print(graph), R"(graph "train" {
  input data "x" %0: f16[2]
  input hyperparameter "learning_rate.0" %1: f32[2]
  input hyperparameter "beta1.0" %2: f32[2]
  input hyperparameter "beta2.0" %3: f32[2]
  input hyperparameter "eps.0" %4: f32[2]
  input hyperparameter "weight_decay.0" %5: f32[2]
  state parameter "w" %6: f16[2] update %20
  state accumulator "Accum___w" %7: f16[2] micro_batch %15 update %16
  state optimizer "Step___w" %8: f32[] update %21
  state optimizer "Accl1___w" %9: f16[2] update %22
  state optimizer "Accl2___w" %10: f32[2] update %23
  %11 = mul(%0, %6) : f16[2]
  %12 = cast(%7) {dtype = f32} : f32[2] backward
  %13 = cast(%11) {dtype = f32} : f32[2] backward
  %14 = add(%12, %13) {alpha = 1.0} : f32[2] backward
  %15 = cast(%14) {dtype = f16} : f16[2] backward
  update %16 = fill() {dtype = f16, shape = [2], value = 0.0} : f16[2]
  update %17 = fill() {dtype = f32, shape = [], value = 0.25} : f32[]
  update %18 = cast(%15) {dtype = f32} : f32[2]
  update %19 = mul(%18, %17) : f32[2]
  update %20, %21, %22, %23 = adam(%6, %19, %8, %9, %10, %1, %2, %3, %4, %5) {bias_correction = true, decoupled = false} : f16[2], f32[], f16[2], f32[2]
  output "0" %11
}
)");
}

TEST(AddOptimizer, StatesAreSingleUnlessSaidOtherwise) {
  const auto types = [](const UpdateSpec::Group& group) {
    Graph graph = parse(captured_in_half);
    add_optimizer(graph, {.gradient_accumulation = 2, .groups = {group}});
    verify(graph);
    std::string text;
    for (const State& state : graph.states()) {
      text += fmt::format("{} {} ", state.name, to_string(graph.type(state.initial)));
    }
    return text;
  };
  UpdateSpec::Group group{.parameters = {"w"}, .velocity = true};
  EXPECT_EQ(types(group), "w f16[2] Accum___w f32[2] Step___w f32[] Accl___w f32[2] ");
  group.memories = {{"velocity", DType::f16}};
  EXPECT_EQ(types(group), "w f16[2] Accum___w f32[2] Step___w f32[] Accl___w f16[2] ");
  group.memories = {};
  group.as_parameters = true;
  EXPECT_EQ(types(group), "w f16[2] Accum___w f16[2] Step___w f32[] Accl___w f16[2] ");
}

TEST(AddOptimizer, LeavesParametersInNoGroupAlone) {
  const std::string text = with_optimizer({.gradient_accumulation = 4, .groups = {}});
  EXPECT_EQ(text.find("Gradient___"), std::string::npos);
  EXPECT_EQ(text.find("update"), std::string::npos);
}

TEST(AddOptimizer, LeavesParametersWithoutGradientAlone) {
  Graph graph = read_graph(captured);
  graph.outputs().pop_back();
  add_optimizer(graph, {.gradient_accumulation = 2, .groups = {{.parameters = {"b"}}}});
  EXPECT_EQ(graph.find_state("b")->after_update, graph.find_state("b")->initial);
  EXPECT_EQ(graph.find_state("Accum___b"), nullptr);
}

TEST(AddOptimizer, RefusesWhatItCannotMean) {
  EXPECT_THROW(with_optimizer({.groups = {{.parameters = {"c"}}}}), Error);
  EXPECT_THROW(with_optimizer({.groups = {{.parameters = {"b"}}, {.parameters = {"b"}}}}), Error);
  EXPECT_THROW(with_optimizer({.groups = {{.parameters = {"b"}, .op = "relu"}}}), Error);
  EXPECT_THROW(with_optimizer({.gradient_accumulation = 0, .groups = {}}), Error);
  EXPECT_THROW(with_optimizer({.replicas = 0, .groups = {}}), Error);
  EXPECT_THROW(with_optimizer({.replicas = 2,
                               .clip_norm = true,
                               .groups = {{.parameters = {"b"}}},
                               .replica_groups = {{"b", {1, false}}}}),
               Error);
}

}  // namespace
}  // namespace tessera
