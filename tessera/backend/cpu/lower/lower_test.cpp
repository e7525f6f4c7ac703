#include "tessera/backend/cpu/lower/lower.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "tessera/backend/cpu/engine.h"
#include "tessera/backend/cpu/interpreter_for_test.h"
#include "tessera/backend/cpu/kernels/copy.h"
#include "tessera/backend/cpu/target_for_test.h"
#include "tessera/base/cpu_level_for_test.h"
#include "tessera/ops/builder.h"

namespace tessera::cpu {
namespace {

constexpr int64_t side = 6;
const TensorType square{DType::f32, {side, side}};

Bytes random_bytes(const TensorType& type, std::mt19937& random) {
  Bytes bytes_out(static_cast<size_t>(bytes(type)));
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (size_t i = 0; i < bytes_out.size(); i += sizeof(float)) {
    const float value = uniform(random);
    std::memcpy(&bytes_out[i], &value, sizeof value);
  }
  return bytes_out;
}

size_t arena_buffers(const Plan& plan) {
  return static_cast<size_t>(
      std::count_if(plan.buffers.begin(), plan.buffers.end(),
                    [](const Buffer& buffer) { return buffer.space == Space::arena; }));
}

size_t copies(const Plan& plan) {
  return static_cast<size_t>(std::count_if(plan.calls.begin(), plan.calls.end(),
                                           [](const Call& call) { return call.op == "copy"; }));
}

void expect_no_live_overlap(const Plan& plan) {
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      const Buffer &a = plan.buffers[i], &b = plan.buffers[k];
      if (a.space != Space::arena || b.space != Space::arena) continue;
      const bool both_live = a.first_call <= b.last_call && b.first_call <= a.last_call;
      const bool meet = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
      EXPECT_FALSE(both_live && meet) << "buffers " << i << " and " << k << "\n" << print(plan);
    }
  }
}

// Both sides with reference kernels, so that bits can be compared.
struct ReferenceKernelsOnly {
  WithoutKernels others{
      "packed,onednn_matmul,generated,avx2,avx2_cross_entropy,avx2_cross_entropy_backward"};
};

// Runs the plan and the plain interpretation side by side and expects the same bits everywhere.
void expect_same(const Graph& graph, const Plan& plan, int accumulation, int threads) {
  SCOPED_TRACE(print(plan));
  expect_no_live_overlap(plan);
  EXPECT_GE(plan.memory.arena_bytes, plan.memory.lower_bound_bytes);
  EXPECT_LE(plan.memory.arena_bytes, plan.memory.without_reuse_bytes);

  std::mt19937 random(1);
  ThreadPool pool(threads, level_for_test());
  Engine engine(plan, pool);
  Interpreter plain(graph);
  for (size_t i = 0; i < graph.states().size(); ++i) {
    plain.states[i] = random_bytes(graph.type(graph.states()[i].initial), random);
    std::memcpy(engine.state(i).data, plain.states[i].data(), plain.states[i].size());
  }
  for (int update = 0; update < 2; ++update) {
    for (int step = 0; step < accumulation; ++step) {
      std::vector<Bytes> inputs;
      size_t data = 0, hyper = 0;
      for (const Input& input : graph.inputs()) {
        inputs.push_back(random_bytes(graph.type(input.value), random));
      }
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (graph.inputs()[i].kind == InputKind::data) {
          engine.set_data_input(data++, inputs[i].data());
        } else {
          std::memcpy(engine.hyperparameter(hyper++), inputs[i].data(), inputs[i].size());
        }
      }
      const auto expected = plain.run_micro_batch(inputs);
      const auto inputs_before = inputs;
      engine.run_micro_batch({});
      EXPECT_EQ(inputs, inputs_before);
      for (size_t i = 0; i < expected.size(); ++i) {
        Bytes output(expected[i].size());
        copy_dense(engine.output(i), output.data(), pool);
        EXPECT_EQ(output, expected[i]) << "output " << i;
      }
      if (step + 1 == accumulation) {
        engine.run_update({});
        plain.run_update();
      }
      for (size_t i = 0; i < plain.states.size(); ++i) {
        EXPECT_EQ(std::memcmp(engine.state(i).data, plain.states[i].data(), plain.states[i].size()),
                  0)
            << "state " << i;
      }
    }
  }
}

// Nodes as they are in the graph: what becomes of each can be told.
Plan lower_unfused(const Graph& graph) {
  return lower(graph, on_test_target({.rewrites = {.disabled = {"fuse_elementwise"}}}));
}

void expect_same(const Graph& graph, int accumulation = 2, int threads = 1) {
  const ReferenceKernelsOnly reference;
  expect_same(graph, lower_unfused(graph), accumulation, threads);
  expect_same(graph, lower(graph, on_test_target()), accumulation, threads);
}

struct Program {
  Graph graph;
  Builder build{graph};
  ValueId x = graph.add_input(InputKind::data, "x", square);

  void in_update() { build.set_place({}, Phase::update); }
};

TEST(Lower, ViewsAreNoCalls) {
  Program p;
  const ValueId y = p.build.add("neg", {p.x});
  const ValueId turned =
      p.build.permute(p.build.reshape(y, {2, 3, 6}), std::vector<int64_t>{2, 0, 1});
  p.graph.add_output("y", p.build.add("neg", {turned}));
  p.graph.add_output("turned", turned);
  EXPECT_EQ(lower_unfused(p.graph).calls.size(), 2U);
  expect_same(p.graph);
}

TEST(Lower, AViewThatStridesCannotSayIsCopied) {
  Program p;
  const ValueId turned = p.build.permute(p.build.add("neg", {p.x}), std::vector<int64_t>{1, 0});
  p.graph.add_output("flat", p.build.add("neg", {p.build.reshape(turned, {side * side})}));
  p.graph.add_output("other", p.build.reshape(turned, {4, 9}));
  EXPECT_EQ(copies(lower_unfused(p.graph)), 1U);
  expect_same(p.graph);
}

// The gradient of joined channels, of one image: whatever the layout, it is read where it lies.
TEST(Lower, ASliceBetweenGroupsOfChannelsIsNotCopied) {
  const auto calls_of = [](bool sliced) {
    Graph graph;
    Builder build(graph);
    const TensorType image{DType::f32, {1, 16, 12, 12}}, filters{DType::f32, {16, 16, 3, 3}};
    const ValueId x = graph.add_input(InputKind::data, "x", image);
    const ValueId weight = graph.add_input(InputKind::data, "weight", filters);
    const std::vector<int64_t> one = {1, 1}, two = {2, 2}, none = {0, 0};
    ValueId y =
        build.add("conv", {x, weight}, {{"stride", one}, {"padding", one}, {"dilation", one}});
    if (sliced) {
      y = build.add("view", {y},
                    {{"shape", std::vector<int64_t>{1, 8, 12, 12}},
                     {"strides", std::vector<int64_t>{2304, 144, 12, 1}},
                     {"offset", int64_t{1152}}});
    }
    const Attrs window = {{"kernel_size", two}, {"stride", two}, {"padding", none}};
    graph.add_output("y", build.add_all("max_pool2d_with_indices", {y}, window)[0]);
    return lower_unfused(graph).calls.size();
  };
  EXPECT_EQ(calls_of(true), calls_of(false));
}

TEST(Lower, ElementwiseChainsUseOneBuffer) {
  Program p;
  ValueId y = p.build.add("neg", {p.x});
  for (int i = 0; i < 5; ++i) y = p.build.add("mul", {y, y});
  p.graph.add_output("y", p.build.add("mul", {y, p.x}));
  EXPECT_EQ(arena_buffers(lower_unfused(p.graph)), 1U);
  expect_same(p.graph);
}

// x + sum(x), of which there is a sum too: the two sums are no single pass.
TEST(Lower, ASumIsKnownWhenItsPassHasEnded) {
  Program p;
  const Attrs all = {{"dim", std::vector<int64_t>{}}, {"keepdim", false}};
  const ValueId x = p.build.add("neg", {p.x});
  const ValueId shifted = p.build.add("add", {x, p.build.add("sum", {x}, all)});
  p.graph.add_output("shifted", shifted);
  p.graph.add_output("sum", p.build.add("sum", {shifted}, all));
  EXPECT_NO_THROW(lower(p.graph, on_test_target()));
}

TEST(Lower, LiveOperandsAreNotOverwritten) {
  Program p;
  const ValueId y = p.build.add("neg", {p.x});
  const ValueId turned = p.build.permute(y, std::vector<int64_t>{1, 0});
  const ValueId z = p.build.add("exp", {y});
  p.graph.add_output("sum", p.build.add("mul", {z, turned}));
  p.graph.add_output("self", p.build.add("mul", {y, turned}));
  p.graph.add_output("y", y);
  p.graph.add_output("x", p.x);
  expect_same(p.graph);
}

TEST(Lower, AnOutputSurvivesTheLastCall) {
  Program p;
  const ValueId y = p.build.add("neg", {p.x});
  p.graph.add_output("y", y);
  p.graph.add_output("z", p.build.add("exp", {y}));
  EXPECT_EQ(arena_buffers(lower_unfused(p.graph)), 2U);
  expect_same(p.graph);
}

TEST(Lower, UpdatesHappenInTheStatesMemory) {
  Program p;
  const ValueId lr = p.graph.add_input(InputKind::hyperparameter, "lr", {DType::f32, {}});
  const ValueId w = p.graph.add_state(StateKind::parameter, "w", square);
  const ValueId sum = p.graph.add_state(StateKind::accumulator, "sum", square);
  const ValueId grad = p.build.add("matmul", {p.x, w});
  p.graph.states()[1].after_micro_batch = p.build.add("add", {sum, grad});
  p.in_update();
  const ValueId scaled = p.build.add("mul", {p.graph.states()[1].after_micro_batch, lr});
  p.graph.states()[0].after_update = p.build.add("sub", {w, scaled});
  p.graph.states()[1].after_update =
      p.build.add("mul", {p.graph.states()[1].after_micro_batch, p.build.scalar(0, DType::f32)});
  p.graph.states()[0].after_micro_batch = w;
  const Plan plan = lower_unfused(p.graph);
  EXPECT_EQ(copies(plan), 0U) << print(plan);
  EXPECT_EQ(plan.calls.size() - plan.update_begin, 3U);
  expect_same(p.graph, 3);
}

// A linear layer, given one row: its weights change in their place, by one call.
TEST(Lower, AnOuterProductIsUsedUpByItsUpdate) {
  constexpr int64_t in = 80, out = 70;
  Graph graph;
  Builder build(graph);
  const ValueId x = graph.add_input(InputKind::data, "x", {DType::f32, {1, in}});
  std::vector<ValueId> numbers;
  for (const char* name : {"learning_rate", "momentum", "dampening", "weight_decay"})
    numbers.push_back(graph.add_input(InputKind::hyperparameter, name, {DType::f32, {2}}));
  const ValueId w = graph.add_state(StateKind::parameter, "w", {DType::f32, {out, in}});
  const ValueId step = graph.add_state(StateKind::optimizer, "step", {DType::f32, {}});
  const ValueId velocity = graph.add_state(StateKind::optimizer, "v", {DType::f32, {out, in}});
  const std::vector<int64_t> turned = {1, 0};
  const ValueId y = build.add("matmul", {x, build.permute(w, turned)});
  graph.add_output("y", y);
  const ValueId grad = build.add("matmul", {build.permute(build.add("exp", {y}), turned), x});
  build.set_place({}, Phase::update);
  std::vector<ValueId> operands = {w, grad, step, velocity};
  operands.insert(operands.end(), numbers.begin(), numbers.end());
  const auto results = build.add_all("sgd", operands);
  for (size_t i = 0; i < 3; ++i) graph.states()[i].after_update = results[i];
  const Plan plan = lower(graph, on_test_target());
  EXPECT_EQ(plan.calls.size(), 3U) << print(plan);
  EXPECT_EQ(plan.calls.size() - plan.update_begin, 1U);
  EXPECT_EQ(plan.calls.back().op, "sgd_of_product");
  EXPECT_LT(plan.memory.without_reuse_bytes, int64_t{in * out * 4});
  expect_same(graph, 1);
}

// Among few values of a channel, one that falls on the other side of a ReLU is seen.
TEST(Lower, TrainingOnFewValuesRoundsLittle) {
  const auto kernel_of = [](int64_t images, bool trains) {
    Graph graph;
    Builder build(graph);
    const std::vector<int64_t> one = {1, 1};
    const ValueId x = graph.add_input(InputKind::data, "x", {DType::f32, {images, 64, 32, 32}});
    const ValueId w = graph.add_state(StateKind::parameter, "w", {DType::f32, {64, 64, 3, 3}});
    const Attrs window = {{"stride", one}, {"padding", one}, {"dilation", one}};
    graph.add_output("y", build.add("conv", {x, w}, window));
    if (trains) {
      std::vector<ValueId> operands = {
          w, w, graph.add_state(StateKind::optimizer, "step", {DType::f32, {}}),
          graph.add_state(StateKind::optimizer, "velocity", {DType::f32, {64, 64, 3, 3}})};
      for (const char* name : {"learning_rate", "momentum", "dampening", "weight_decay"})
        operands.push_back(graph.add_input(InputKind::hyperparameter, name, {DType::f32, {2}}));
      build.set_place({}, Phase::update);
      const auto results = build.add_all("sgd", operands);
      for (size_t i = 0; i < 3; ++i) graph.states()[i].after_update = results[i];
    }
    const Plan plan = lower(graph, on_test_target());
    const auto conv = std::find_if(plan.calls.begin(), plan.calls.end(),
                                   [](const Call& call) { return call.op == "conv"; });
    return conv->kernel;
  };
  const std::string fastest = kernel_of(8, true);
  if (fastest != "winograd_4") GTEST_SKIP() << "no Winograd convolutions here";
  EXPECT_EQ(kernel_of(2, true), "winograd_2");
  EXPECT_EQ(kernel_of(2, false), "winograd_4");
}

// A softmax and its loss: one call each way, the gradient in the place of the scores.
TEST(Lower, ALossIsOneCallEachWay) {
  Program p;
  const ValueId labels =
      p.build.add("fill", {}, {{"shape", Shape{side}}, {"value", 2.0}, {"dtype", DType::i32}});
  const Attrs over_classes = {{"dim", int64_t{1}}};
  const ValueId scores = p.build.add("matmul", {p.x, p.x});
  const ValueId logs = p.build.add("_log_softmax", {scores}, over_classes);
  const auto losses = p.build.add_all("nll_loss_forward", {logs, labels, {}});
  const ValueId one = p.build.scalar(1, DType::f32);
  const ValueId grad = p.build.add("nll_loss_backward", {one, logs, labels, {}, losses[1]});
  p.graph.add_output("loss", losses[0]);
  p.graph.add_output("grad", p.build.add("_log_softmax_backward_data", {grad, logs}, over_classes));
  const Plan plan = lower(p.graph, on_test_target());
  ASSERT_EQ(plan.calls.size(), 3U) << print(plan);
  EXPECT_EQ(plan.calls[1].op, "cross_entropy");
  EXPECT_EQ(plan.calls[2].op, "cross_entropy_backward");
  EXPECT_EQ(plan.calls[2].outputs[0].buffer, plan.calls[0].outputs[0].buffer);
  expect_same(p.graph);
}

TEST(Lower, AStateWithLaterReadersIsCopiedAtTheEnd) {
  Program p;
  const ValueId mean = p.graph.add_state(StateKind::buffer, "mean", square);
  const ValueId next = p.build.add("add", {mean, p.x});
  p.graph.states()[0].after_micro_batch = p.graph.states()[0].after_update = next;
  p.graph.add_output("old", p.build.add("neg", {mean}));
  EXPECT_EQ(copies(lower_unfused(p.graph)), 1U);
  expect_same(p.graph);
}

TEST(Lower, OldValuesWantedAfterTheChangeAreSaved) {
  Program p;
  const ValueId mean = p.graph.add_state(StateKind::buffer, "mean", square);
  const ValueId w = p.graph.add_state(StateKind::parameter, "w", square);
  const ValueId next = p.build.add("add", {mean, p.x});
  p.graph.states()[0].after_micro_batch = next;
  p.graph.add_output("old", mean);
  p.in_update();
  p.graph.states()[0].after_update = p.build.permute(next, std::vector<int64_t>{1, 0});
  p.graph.states()[1].after_update = p.build.add("sub", {w, mean});
  expect_same(p.graph);
}

TEST(Lower, StatesMayChangePlaces) {
  Program p;
  const ValueId a = p.graph.add_state(StateKind::buffer, "a", square);
  const ValueId b = p.graph.add_state(StateKind::buffer, "b", square);
  p.graph.states()[0].after_micro_batch = p.graph.states()[0].after_update = b;
  p.graph.states()[1].after_micro_batch = p.graph.states()[1].after_update = a;
  expect_same(p.graph);
}

TEST(Lower, ConstantsAreFilledAtLoad) {
  Program p;
  const ValueId two = p.build.scalar(2, DType::f32);
  p.graph.add_output("y", p.build.add("mul", {p.x, two}));
  const Plan plan = lower_unfused(p.graph);
  EXPECT_EQ(plan.load.size(), 1U);
  EXPECT_EQ(plan.calls.size(), 1U);
  EXPECT_EQ(plan.memory.constant_bytes, 64);
  expect_same(p.graph);
}

TEST(Lower, TheTextNamesKernelsAndMemory) {
  Program p;
  p.build.set_place({"train.py", 31, "fc1", false}, Phase::micro_batch);
  p.graph.add_output("y", p.build.add("neg", {p.x}));
  const std::string text = print(lower_unfused(p.graph));
  EXPECT_NE(text.find("neg: reference(data0:f32[6,6]) -> b"), std::string::npos) << text;
  EXPECT_NE(text.find("# fc1 [train.py:31]"), std::string::npos) << text;
  EXPECT_NE(text.find("arena 192 B (at least 192 B"), std::string::npos) << text;
}

// Any graph over a few operators, views, states and both phases.
Graph random_graph(uint32_t seed) {
  std::mt19937 random(seed);
  Program p;
  std::vector<ValueId> values = {p.x};
  for (int i = 0; i < 3; ++i) {
    values.push_back(p.graph.add_state(StateKind::buffer, fmt::format("s{}", i), square));
  }
  const auto pick = [&] { return values[random() % values.size()]; };
  const auto add_some = [&](uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      switch (random() % 8) {
        case 0:
          values.push_back(p.build.add("neg", {pick()}));
          break;
        case 1:
          values.push_back(p.build.add("matmul", {pick(), pick()}));
          break;
        case 2:
          values.push_back(p.build.permute(pick(), std::vector<int64_t>{1, 0}));
          break;
        case 3:
          values.push_back(p.build.reshape(p.build.view(pick(), {2, 3, 6}, {3, 1, 6}), {6, 6}));
          break;
        case 4:  // the first row everywhere
          values.push_back(p.build.view(pick(), {side, side}, {0, 1}));
          break;
        case 5:
          values.push_back(p.build.add("write_view",
                                       {pick(), p.build.view(pick(), {2, 2}, {6, 1}, 7)},
                                       {{"strides", Strides{6, 1}}, {"offset", int64_t{2}}}));
          break;
        default:
          values.push_back(p.build.add(random() % 2 ? "mul" : "sub", {pick(), pick()}));
      }
    }
  };
  add_some(2 + random() % 12);
  for (uint32_t i = random() % 4; i > 0; --i) p.graph.add_output(fmt::format("o{}", i), pick());
  for (State& state : p.graph.states()) {
    if (random() % 3 != 0) state.after_micro_batch = state.after_update = pick();
  }
  p.in_update();
  add_some(random() % 8);
  for (State& state : p.graph.states()) {
    if (random() % 2 != 0) state.after_update = pick();
  }
  return std::move(p.graph);
}

TEST(Lower, RandomGraphsMeanTheSame) {
  for (uint32_t seed = 0; seed < 600 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    expect_same(random_graph(seed));
  }
}

}  // namespace
}  // namespace tessera::cpu
