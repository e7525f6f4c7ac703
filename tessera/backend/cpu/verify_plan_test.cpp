#include "tessera/backend/cpu/verify_plan.h"

#include <gtest/gtest.h>

#include "tessera/backend/cpu/lower/lower.h"
#include "tessera/backend/cpu/memory_contents.h"
#include "tessera/backend/cpu/target_for_test.h"
#include "tessera/base/error.h"
#include "tessera/ops/builder.h"

namespace tessera::cpu {
namespace {

constexpr int64_t side = 6;
const TensorType square{DType::f32, {side, side}};

// Each operator a call of its own, so that what is broken below is there.
//
//   a = x @ w;  b = exp(a);  c = a.T @ b;  output b, output a view of c
//   update: w = w - c
Plan plan_of_a_step() {
  Graph graph;
  Builder build(graph);
  const ValueId x = graph.add_input(InputKind::data, "x", square);
  const ValueId w = graph.add_state(StateKind::parameter, "w", square);
  const ValueId a = build.add("matmul", {x, w});
  const ValueId b = build.add("exp", {a});
  const ValueId c = build.add("matmul", {build.permute(a, std::vector<int64_t>{1, 0}), b});
  graph.add_output("b", b);
  graph.add_output("c", build.permute(c, std::vector<int64_t>{1, 0}));
  build.set_place({}, Phase::update);
  graph.states()[0].after_update = build.add("sub", {w, c});
  return lower(graph, on_test_target({.keep_operators = true}));
}

void expect_broken(const Plan& plan, std::string_view what) {
  const auto broken = find_broken_promise(plan);
  ASSERT_TRUE(broken) << print(plan);
  EXPECT_NE(broken->find(what), std::string::npos) << *broken << "\n" << print(plan);
  EXPECT_THROW(verify(plan), InternalError);
}

Buffer& buffer_of(Plan& plan, const Place& place) {
  return plan.buffers[static_cast<size_t>(place.buffer.index)];
}

TEST(VerifyPlan, AcceptsWhatLoweringMakes) {
  const Plan plan = plan_of_a_step();
  ASSERT_EQ(plan.calls.size(), 4U) << print(plan);
  EXPECT_EQ(find_broken_promise(plan), std::nullopt);
}

TEST(VerifyPlan, AValueIsWrittenBeforeItIsRead) {
  Plan plan = plan_of_a_step();
  std::swap(plan.calls[0], plan.calls[1]);
  expect_broken(plan, "it was not written, or overwritten");
}

TEST(VerifyPlan, AValueIsWrittenInThePhaseThatReadsIt) {
  Plan plan = plan_of_a_step();
  plan.update_begin = 2;  // the second output is written by the third call
  expect_broken(plan, "output 1 reads");
}

TEST(VerifyPlan, AnUpdateIsNoPartOfAMicroBatch) {
  Plan plan = plan_of_a_step();
  plan.update_begin = 4;
  expect_broken(plan, "state 0 after a micro-batch reads");
}

TEST(VerifyPlan, AStateHasItsNewValueInTheEnd) {
  Plan plan = plan_of_a_step();
  plan.calls[3].outputs[0].buffer = plan.calls[1].outputs[0].buffer;
  buffer_of(plan, plan.calls[3].outputs[0]).last_call = 3;
  expect_broken(plan, "state 0 after an update reads");
}

TEST(VerifyPlan, LiveValuesDoNotOverlap) {
  Plan plan = plan_of_a_step();
  buffer_of(plan, plan.calls[2].outputs[0]).offset =
      buffer_of(plan, plan.calls[1].outputs[0]).offset;
  expect_broken(plan, "writes result 0 over operand 1");
  plan = plan_of_a_step();
  Buffer& late = buffer_of(plan, plan.calls[1].outputs[0]);
  late.offset = buffer_of(plan, plan.calls[0].outputs[0]).offset + memory_alignment;
  plan.memory.arena_bytes = 4096;
  expect_broken(plan, "over operand");
}

TEST(VerifyPlan, AWorkspaceTakesNobodysPlace) {
  Plan plan = plan_of_a_step();
  const Buffer taken = buffer_of(plan, plan.calls[0].outputs[0]);
  plan.calls[1].workspace = {static_cast<int32_t>(plan.buffers.size())};
  plan.buffers.push_back(taken);
  expect_broken(plan, "works in the memory of");
}

TEST(VerifyPlan, ReaderAndWriterAgreeOnTheGeometry) {
  Plan plan = plan_of_a_step();
  plan.calls[2].inputs[0].geometry.strides = {side, 1};  // not turned
  expect_broken(plan, "in another place than it was written to");
  plan = plan_of_a_step();
  plan.outputs[1].geometry.strides = {side, 1};
  expect_broken(plan, "output 1 looks for element");
}

TEST(VerifyPlan, ReaderAndWriterAgreeOnTheLayout) {
  Graph graph;
  Builder build(graph);
  const ValueId x = graph.add_input(InputKind::data, "x", {DType::f32, {2, 16, 4, 4}});
  const ValueId y = build.add("neg", {x});
  graph.add_output("y", y);
  graph.add_output("z", build.add("exp", {y}));
  Plan plan = lower(graph, on_test_target({.keep_operators = true}));
  Place& written = plan.calls[0].outputs[0];
  written.layout = channels_layout;
  written.geometry = dense(physical_shape(channels_layout, {2, 16, 4, 4}));
  plan.calls[0].inputs[0].layout = channels_layout;
  plan.calls[0].inputs[0].geometry =
      physical_geometry(channels_layout, plan.calls[0].inputs[0].geometry);
  expect_broken(plan, "layouts plain and cut1");
}

TEST(VerifyPlan, ACallReadsAndWritesWhatItsNodeSays) {
  Plan plan = plan_of_a_step();
  std::swap(plan.calls[0].inputs[0], plan.calls[0].inputs[1]);
  expect_broken(plan, "does not read the operands of its node");
  plan = plan_of_a_step();
  plan.calls[1].node = plan.calls[0].node;
  expect_broken(plan, "runs a node twice");
  plan = plan_of_a_step();
  plan.calls.pop_back();
  expect_broken(plan, "after an update");
}

TEST(VerifyPlan, EveryElementOfAResultIsWritten) {
  Plan plan = plan_of_a_step();
  plan.calls[1].outputs[0].geometry = dense({side, side - 1});
  expect_broken(plan, "does not write every element");
}

TEST(VerifyPlan, NothingReachesOutsideItsMemory) {
  Plan plan = plan_of_a_step();
  plan.calls[1].inputs[0].geometry.offset = 1;
  expect_broken(plan, "reaches outside the buffer");
  plan = plan_of_a_step();
  plan.memory.arena_bytes -= memory_alignment;
  expect_broken(plan, "outside its memory");
  plan = plan_of_a_step();
  plan.calls[1].inputs[0].dtype = DType::i32;
  expect_broken(plan, "for i32");
}

TEST(VerifyPlan, ValuesAreKeptAsLongAsTheyAreUsed) {
  Plan plan = plan_of_a_step();
  buffer_of(plan, plan.calls[0].outputs[0]).last_call = 0;
  expect_broken(plan, "when it is not kept");
}

TEST(MemoryContents, KnowsWhoWroteLast) {
  const Place a, b;
  MemoryContents memory;
  EXPECT_EQ(memory.holds({0, 8}), nullptr);
  memory.write({0, 64}, &a);
  memory.write({16, 32}, &b);
  EXPECT_EQ(memory.holds({0, 16}), &a);
  EXPECT_EQ(memory.holds({16, 32}), &b);
  EXPECT_EQ(memory.holds({32, 64}), &a);
  EXPECT_EQ(memory.holds({8, 24}), nullptr);
  EXPECT_EQ(memory.holds({60, 70}), nullptr);
  memory.write({0, 100}, &b);
  EXPECT_EQ(memory.holds({0, 100}), &b);
}

}  // namespace
}  // namespace tessera::cpu
