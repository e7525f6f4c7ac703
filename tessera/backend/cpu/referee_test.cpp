#include "tessera/backend/cpu/referee.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tessera/backend/cpu/engine.h"
#include "tessera/backend/cpu/lower/lower.h"
#include "tessera/backend/cpu/target_for_test.h"
#include "tessera/base/cpu_level_for_test.h"
#include "tessera/base/error.h"
#include "tessera/ops/builder.h"

namespace tessera::cpu {
namespace {

const TensorType images{DType::f32, {2, 16, 8, 8}};

// conv, exp, a flattened output and an update of the filters.
Graph small_step() {
  Graph graph;
  Builder build(graph);
  const std::vector<int64_t> one = {1, 1};
  const ValueId x = graph.add_input(InputKind::data, "x", images);
  const ValueId w = graph.add_state(StateKind::parameter, "w", {DType::f32, {16, 16, 3, 3}});
  build.set_place({"net.py", 7, "features.0", false}, Phase::micro_batch);
  const ValueId y =
      build.add("conv", {x, w}, {{"stride", one}, {"padding", one}, {"dilation", one}});
  const ValueId z = build.add("exp", {y});
  graph.add_output("flat", build.reshape(z, {2, 1024}));
  build.set_place({}, Phase::update);
  graph.states()[0].after_update = build.add("mul", {w, build.scalar(0.5, DType::f32)});
  return graph;
}

// Whether a number is at least what rounding alone makes of it.
Graph comparing_step() {
  Graph graph;
  Builder build(graph);
  const ValueId x = graph.add_input(InputKind::data, "x", images);
  graph.add_state(StateKind::parameter, "w", {DType::f32, {16, 16, 3, 3}});
  const ValueId small = build.add("mul", {x, build.scalar(1e-4, DType::f32)});
  const ValueId same = build.add("tanh", {build.add("tanh", {small})});
  graph.add_output("at least", build.add("ge", {small, same}));
  return graph;
}

// Does what another kernel does, and then something to its result.
class Spoilt : public PreparedKernel {
 public:
  Spoilt(std::shared_ptr<const PreparedKernel> kernel, void (*spoil)(float*))
      : kernel_(std::move(kernel)), spoil_(spoil) {}
  int64_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
  void run(const KernelCall& call, std::span<std::byte> workspace) const override {
    kernel_->run(call, workspace);
    spoil_(call.outputs[0].as<float>());
  }

 private:
  std::shared_ptr<const PreparedKernel> kernel_;
  void (*spoil_)(float*);
};

// One element in a hundred of a result is too large by a hundredth.
class SpoiltAt : public PreparedKernel {
 public:
  SpoiltAt(std::shared_ptr<const PreparedKernel> kernel, size_t result)
      : kernel_(std::move(kernel)), result_(result) {}
  int64_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
  void run(const KernelCall& call, std::span<std::byte> workspace) const override {
    kernel_->run(call, workspace);
    const TensorView& out = call.outputs[result_];
    for (int64_t i = 0; i < out.numel(); i += 100) {
      if (out.dtype == DType::f32) {
        out.as<float>()[i] *= 1.01F;
      } else {
        Half& half = out.as<Half>()[i];
        half = to_half(to_float(half) * 1.01F);
      }
    }
  }

 private:
  std::shared_ptr<const PreparedKernel> kernel_;
  size_t result_;
};

class DoesNothing : public PreparedKernel {
 public:
  void run(const KernelCall&, std::span<std::byte>) const override {}
};

std::vector<float> numbers(int64_t count) {
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(uniform_from_word(random_words({}, 3, static_cast<uint64_t>(i))[0]) - 0.5F);
  }
  return out;
}

// What the referee says of two steps; nothing where it has nothing to say.
std::string judged(const Plan& plan, float first = 0.25F) {
  ThreadPool pool(2, level_for_test());
  Engine engine(plan, pool);
  engine.check_calls(true);
  std::vector<float> input = numbers(numel(images.shape));
  input[0] = first;
  engine.set_data_input(0, reinterpret_cast<const std::byte*>(input.data()));
  const std::vector<float> filters = numbers(16 * 16 * 9);
  std::memcpy(engine.state(0).data, filters.data(), filters.size() * sizeof(float));
  try {
    for (int step = 0; step < 2; ++step) {
      engine.run_micro_batch({});
      engine.run_update({});
    }
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

Call& call_of(Plan& plan, std::string_view op) {
  for (Call& call : plan.calls) {
    if (call.op == op) return call;
  }
  throw std::logic_error("no such call");
}

TEST(Referee, HasNothingToSayOfARightPlan) {
  EXPECT_EQ(judged(lower(small_step(), on_test_target())), "");
  EXPECT_EQ(judged(lower(small_step(), on_test_target({.keep_operators = true}))), "");
  EXPECT_EQ(judged(lower(small_step(), on_test_target({.target = {.precise = true}}))), "");
}

TEST(Referee, FindsWrongHalves) {
  Graph graph;
  Builder build(graph);
  const ValueId x = graph.add_input(InputKind::data, "x", images);
  graph.add_state(StateKind::parameter, "w", {DType::f32, {16, 16, 3, 3}});
  const ValueId half = build.cast(build.add("exp", {x}), DType::f16);
  graph.add_output("wide", build.add("tanh", {build.cast(half, DType::f32)}));
  graph.add_output("half", half);
  EXPECT_EQ(judged(lower(graph, on_test_target())), "");
  Plan plan = lower(graph, on_test_target());
  const auto right = plan.calls.back().run;
  for (size_t result = 0; result < plan.calls.back().outputs.size(); ++result) {
    plan.calls.back().run = std::make_shared<SpoiltAt>(right, result);
    EXPECT_NE(judged(plan).find("the reference kernel"), std::string::npos) << result;
  }
}

TEST(Referee, NamesTheCallTheKernelAndTheLine) {
  Plan plan = lower(small_step(), on_test_target({.keep_operators = true}));
  Call& conv = call_of(plan, "conv");
  conv.kernel = "spoilt";
  conv.run = std::make_shared<Spoilt>(conv.run, [](float* out) { out[3] *= 1.01F; });
  const std::string said = judged(plan);
  EXPECT_NE(said.find("conv by spoilt of features.0 [net.py:7]"), std::string::npos) << said;
  EXPECT_NE(said.find("the reference kernel"), std::string::npos) << said;
  EXPECT_NE(said.find("TESSERA_DISABLE_KERNELS=spoilt"), std::string::npos) << said;
}

TEST(Referee, KnowsThatKernelsSkipPaddingOrTransformTiles) {
  const float infinite = std::numeric_limits<float>::infinity();
  EXPECT_EQ(judged(lower(small_step(), on_test_target({.keep_operators = true})), infinite), "");

  // Where both sides have numbers they are still compared.
  Plan plan = lower(small_step(), on_test_target({.keep_operators = true}));
  Call& conv = call_of(plan, "conv");
  conv.run = std::make_shared<Spoilt>(conv.run, [](float* out) { out[1100] *= 1.01F; });
  EXPECT_NE(judged(plan, infinite), "");
}

TEST(Referee, KnowsThatStepsOfAFusedBodyRound) {
  const Plan plan = lower(comparing_step(), on_test_target());
  EXPECT_EQ(plan.calls.size(), 1U);
  EXPECT_EQ(judged(plan), "");
}

TEST(Referee, SeesWhatWasNotWritten) {
  Plan plan = lower(small_step(), on_test_target({.keep_operators = true}));
  Call& conv = call_of(plan, "conv");
  conv.run = std::make_shared<DoesNothing>();
  EXPECT_NE(judged(plan).find("has -nan"), std::string::npos);
}

TEST(Referee, SeesAnOperandThatSomebodyChanged) {
  Plan plan = lower(small_step(), on_test_target({.keep_operators = true}));
  // In the order of memory, a row-major image is not one in groups of channels.
  Call& exp = call_of(plan, "exp");
  exp.inputs[0].geometry.offset = 0;
  std::swap(exp.inputs[0].geometry.strides.front(), exp.inputs[0].geometry.strides.back());
  std::swap(exp.inputs[0].geometry.shape.front(), exp.inputs[0].geometry.shape.back());
  const std::string said = judged(plan);
  EXPECT_NE(said.find("is not what was written as that value"), std::string::npos) << said;
}

TEST(Referee, SeesAnOutputThatIsReadElsewhere) {
  Plan plan = lower(small_step(), on_test_target({.keep_operators = true}));
  plan.outputs[0].buffer = plan.states[0].buffer;
  plan.outputs[0].geometry = dense({2, 1024});
  EXPECT_EQ(judged(plan), "TESSERA_CHECK: output 'flat' is not what was computed for it");
}

TEST(Referee, SeesAStateThatIsNotUpdated) {
  Plan plan = lower(small_step(), on_test_target({.keep_operators = true}));
  Call& update = plan.calls.back();
  update.run = std::make_shared<DoesNothing>();
  EXPECT_NE(judged(plan).find("mul by"), std::string::npos);
  plan = lower(small_step(), on_test_target({.keep_operators = true}));
  plan.calls.pop_back();
  EXPECT_EQ(judged(plan),
            "TESSERA_CHECK: state 'w' is not what was computed for it after an update");
}

}  // namespace
}  // namespace tessera::cpu
