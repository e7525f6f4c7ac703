#include "tessera/passes/scale_loss.h"

#include <gtest/gtest.h>

#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"
#include "tessera/passes/add_optimizer.h"

namespace tessera {
namespace {

// loss = sum(w x), in half precision; what forward and dead nodes compute is no gradient.
constexpr std::string_view captured = R"(graph "train" {
  input data "x" %0: f16[2,3]
  state parameter "w" %1: f16[2,3]
  %2 = mul(%0, %1) : f16[2,3]
  %3 = sum(%2) : f16[]
  %4 = fill() {dtype = f16, shape = [], value = 1.0} : f16[] backward
  %5 = view(%4) {offset = 0, shape = [2,3], strides = [0,0]} : f16[2,3] backward
  %6 = mul(%5, %0) : f16[2,3] backward
  %7 = mul(%5, %1) : f16[2,3] backward
  output "0" %3
  output "Gradient___w" %6
}
)";
constexpr ValueId loss_gradient{4};

TEST(ScaleLoss, MultipliesWhereBackwardBegins) {
  Graph graph = parse(captured);
  ValueId loss{3};
  const LossScale scale = scale_loss(graph, {}, loss_gradient, loss);
  verify(graph);
  EXPECT_EQ(print(graph), R"(graph "train" {
  input data "x" %0: f16[2,3]
  input hyperparameter "loss_scaling" %1: f32[]
  state parameter "w" %2: f16[2,3]
  %3 = mul(%0, %2) : f16[2,3]
  %4 = sum(%3) : f16[]
  %5 = fill() {dtype = f16, shape = [], value = 1.0} : f16[] backward
  %6 = cast(%1) {dtype = f16} : f16[] backward in "loss_scaling"
  %7 = cast(%6) {dtype = f32} : f32[] backward in "loss_scaling"
  %8 = mul(%5, %6) : f16[] backward in "loss_scaling"
  %9 = view(%8) {offset = 0, shape = [2, 3], strides = [0, 0]} : f16[2,3] backward
  %10 = mul(%9, %0) : f16[2,3] backward
  %11 = mul(%9, %2) : f16[2,3] backward
  output "0" %4
  output "Gradient___w" %10
}
)");
  EXPECT_EQ(loss.index, graph.outputs()[0].value.index);
  EXPECT_TRUE(scale.of_half);
  EXPECT_FALSE(scale.above.valid());

  add_optimizer(graph, {.loss_scale = scale.divisor, .groups = {{.parameters = {"w"}}}});
  verify(graph);
  const std::string text = print(graph);
  EXPECT_NE(text.find("= div("), std::string::npos) << text;
  EXPECT_NE(text.find(") : f32[2,3]\n  update"), std::string::npos) << text;  // before sgd()
}

TEST(ScaleLoss, KnowsWhetherThereAreHalfGradients) {
  EXPECT_TRUE(has_half_gradients(parse(captured), loss_gradient));
  // A half value that only leads to something else than a gradient.
  const Graph other = parse(R"(graph "train" {
  state parameter "w" %0: f32[]
  %1 = fill() {dtype = f32, shape = [], value = 1.0} : f32[] backward
  %2 = cast(%1) {dtype = f16} : f16[] backward
  %3 = mul(%1, %0) : f32[] backward
  output "0" %2
  output "Gradient___w" %3
}
)");
  EXPECT_FALSE(has_half_gradients(other, ValueId{1}));
}

TEST(ScaleLoss, CountsGradientsBesideTheirNodes) {
  Graph graph = parse(captured);
  ValueId loss{3};
  const LossScale scale =
      scale_loss(graph, {.automatic = true, .gradient_accumulation = 5, .statistics = true},
                 loss_gradient, loss);
  EXPECT_EQ(scale.counted, 5 * 6);  // not of the view, nor of what nobody needs
  EXPECT_TRUE(scale.overflowed.valid() && scale.underflowed.valid());
  ASSERT_TRUE(scale.above.valid());
  add_optimizer(
      graph,
      {.gradient_accumulation = 5, .loss_scale = scale.divisor, .groups = {{.parameters = {"w"}}}});
  add_loss_scale_update(graph, scale, {.period = 3});
  graph.add_output("overflowed", scale.overflowed);
  graph.add_output("underflowed", scale.underflowed);
  verify(graph);
  std::string states;
  for (const State& state : graph.states()) {
    states += state.name + " ";
    EXPECT_NE(state.after_update, state.initial) << state.name;
  }
  EXPECT_EQ(states,
            "w lossScaleUpdateFactor Counter___gradientsAboveEdge Accum___w lossScaleUpdatesSince "
            "lossScaleAboveEdge ");
  const std::string text = print(graph);
  EXPECT_LT(text.find("value = 8188.0"), text.find("in \"w\"")) << text;
}

TEST(ScaleLoss, LooksAtProductsAloneWhereThatIsAskedFor) {
  Graph graph = parse(captured);
  ValueId loss{3};
  const LossScale scale =
      scale_loss(graph, {.automatic = true, .products_only = true}, loss_gradient, loss);
  EXPECT_FALSE(scale.above.valid());
  add_loss_scale_update(graph, scale, {});  // nothing to decide by
  const State* factor = graph.find_state(loss_scale_factor_name);
  ASSERT_TRUE(factor);
  EXPECT_EQ(factor->after_update, factor->initial);
}

}  // namespace
}  // namespace tessera
