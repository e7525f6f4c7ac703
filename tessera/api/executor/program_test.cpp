#include "tessera/api/executor/program.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/ops/builder.h"
#include "tessera/runtime/compile.h"

namespace tessera {
namespace {

// y = x * w; x becomes x + i, with i given in 64 bits. Beside y a constant comes back.
CompiledStep compiled() {
  Graph graph;
  Builder build(graph);
  const ValueId x = graph.add_input(InputKind::data, "x", {DType::f32, {2}});
  const ValueId i = graph.add_input(InputKind::data, "i", {DType::i32, {2}});
  const ValueId w = graph.add_state(StateKind::parameter, "w", {DType::f32, {2}});
  graph.add_output("y", build.add("mul", {x, w}));
  graph.add_output("new x", build.add("add", {x, build.cast(i, DType::f32)}));
  StepSignature signature = signature_of(graph);
  signature.device_iterations = 2;
  signature.inputs[1].host = DType::i64;
  signature.outputs[0].mode = OutputMode::final_value;
  signature.returned = {{.is_new = true}, {.output = 0}, {}};
  signature.written_back = {{0, 1}};
  return {.executable = compile(std::move(graph), std::move(signature)),
          .constants = {at::ones({1}), {}, at::zeros({1})},
          .tensor_names = {"x"},
          .weights = 1};
}

std::vector<at::Tensor> call(Program& program, const std::vector<at::Tensor>& inputs) {
  program.check_inputs(inputs);
  const auto room = program.stage(inputs);
  program.check_apart(inputs);
  return program.run(
      inputs, room, [] { return std::vector<double>(); }, std::chrono::steady_clock::now());
}

struct Loaded {
  Program program;
  CompiledStep step = compiled();
  Loaded() {
    program.load(step, {});
    program.attach({});
    const std::vector<float> w = {2, 3};
    program.session().write_state(0, std::as_bytes(std::span(w)));
  }
};

TEST(Program, IsEmptyUntilSomethingIsLoaded) {
  Program program;
  EXPECT_FALSE(program.is_compiled());
  EXPECT_THROW(program.check_compiled(), Error);
  EXPECT_TRUE(program.perf_counters().input[0].empty());
  Loaded loaded;
  EXPECT_TRUE(loaded.program.is_attached());
  loaded.program.detach();
  EXPECT_TRUE(loaded.program.is_compiled());
  loaded.program.clear();
  EXPECT_FALSE(loaded.program.is_compiled());
}

TEST(Program, ReadsReturnsAndWritesBackTensors) {
  Loaded loaded;
  const at::Tensor x = at::tensor({1.0F, 2.0F, 3.0F, 4.0F});
  const auto returned = call(loaded.program, {x, at::tensor({10, 20, 30, 40}, at::kLong)});
  ASSERT_EQ(returned.size(), 3U);
  EXPECT_TRUE(at::equal(returned[1], at::tensor({6.0F, 12.0F})));
  EXPECT_TRUE(at::equal(x, at::tensor({11.0F, 22.0F, 33.0F, 44.0F})));
  EXPECT_TRUE(at::equal(returned[0], loaded.step.constants[0]));
  EXPECT_FALSE(returned[0].is_same(loaded.step.constants[0]));
  EXPECT_TRUE(returned[2].is_same(loaded.step.constants[2]));
  EXPECT_TRUE(loaded.program.has_run());
}

TEST(Program, RefusesOtherTensors) {
  Loaded loaded;
  const auto i = at::zeros({4}, at::kLong);
  EXPECT_THROW(loaded.program.check_inputs({at::zeros({4})}), Error);
  EXPECT_THROW(loaded.program.check_inputs({at::zeros({2}), i}), Error);
  EXPECT_THROW(loaded.program.check_inputs({at::zeros({4}), i.to(at::kInt)}), Error);
  const auto memory = at::zeros({8}, at::kLong);
  EXPECT_THROW(loaded.program.check_apart({memory.narrow(0, 0, 4), memory.narrow(0, 3, 4)}), Error);
  loaded.program.check_apart({memory.narrow(0, 0, 4), memory.narrow(0, 4, 4)});
}

TEST(Program, SyntheticInputsLeaveTheUsersAlone) {
  Program program;
  program.load(compiled(), {.synthetic_data = true});
  program.attach({});
  const at::Tensor x = at::zeros({4});
  call(program, {x, at::full({4}, int64_t{1} << 40, at::kLong)});  // which would not fit
  EXPECT_TRUE(at::equal(x, at::zeros({4})));
}

}  // namespace
}  // namespace tessera
