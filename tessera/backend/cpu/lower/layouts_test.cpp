#include "tessera/backend/cpu/lower/layouts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tessera/backend/cpu/engine.h"
#include "tessera/backend/cpu/kernels/copy.h"
#include "tessera/backend/cpu/lower/lower.h"
#include "tessera/backend/cpu/lower/run_graph_for_test.h"
#include "tessera/backend/cpu/target_for_test.h"
#include "tessera/base/cpu_level_for_test.h"
#include "tessera/ops/builder.h"

namespace tessera::cpu {
namespace {

// A convolution whose result lies in groups of channels, and what a test does with it.
struct Net {
  Graph graph;
  Builder build{graph};
  ValueId x, w, y;

  Net() {
    const std::vector<int64_t> one = {1, 1};
    x = graph.add_input(InputKind::data, "x", {DType::f32, {4, 16, 8, 8}});
    w = graph.add_state(StateKind::parameter, "w", {DType::f32, {16, 16, 3, 3}});
    y = build.add("conv", {x, w}, {{"stride", one}, {"padding", one}, {"dilation", one}});
  }

  // As a training step has one: conversions may not slip behind it.
  void add_update() {
    build.set_place({}, Phase::update);
    graph.states()[0].after_update = build.add("mul", {w, build.scalar(0.5, DType::f32)});
  }
};

void expect_near(const Bytes& got, const Bytes& wanted, const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size());
  const auto* a = reinterpret_cast<const float*>(got.data());
  const auto* b = reinterpret_cast<const float*>(wanted.data());
  float largest = 0;
  for (size_t i = 0; i < got.size() / sizeof(float); ++i) {
    largest = std::max(largest, std::fabs(b[i]));
  }
  for (size_t i = 0; i < got.size() / sizeof(float); ++i) {
    ASSERT_NEAR(a[i], b[i], 1e-4F * largest) << what << ", element " << i;
  }
}

Bytes values_of(const TensorView& view, ThreadPool& pool) {
  Bytes out(static_cast<size_t>(view.numel()) * size_of(view.dtype));
  copy_dense(view, out.data(), pool);
  return out;
}

// Two steps of the plan and of the plain interpretation.
void expect_right(const Graph& graph) {
  const Plan plan = lower(graph, on_test_target());
  SCOPED_TRACE(print(plan));
  ThreadPool pool(2, level_for_test());
  Engine engine(plan, pool);
  Interpreter plain(graph);
  Bytes& filters = plain.states[0];
  for (size_t i = 0; i < filters.size() / sizeof(float); ++i) {
    const float value = uniform_from_word(random_words({}, 7, i)[0]) * 0.2F - 0.1F;
    std::memcpy(&filters[i * sizeof value], &value, sizeof value);
  }
  for (size_t i = 0; i < plain.states.size(); ++i) {
    copy_from_dense(plain.states[i].data(), engine.state(i), pool);
  }
  const std::vector<Bytes> inputs = made_up_inputs(graph);
  for (size_t i = 0; i < inputs.size(); ++i) engine.set_data_input(i, inputs[i].data());
  for (int step = 0; step < 2; ++step) {
    const auto outputs = plain.run_micro_batch(inputs);
    engine.run_micro_batch({});
    for (size_t i = 0; i < outputs.size(); ++i) {
      expect_near(values_of(engine.output(i), pool), outputs[i], fmt::format("output {}", i));
    }
    plain.run_update();
    engine.run_update({});
    for (size_t i = 0; i < plain.states.size(); ++i) {
      expect_near(values_of(engine.state(i), pool), plain.states[i], fmt::format("state {}", i));
    }
  }
}

struct View {
  const char* name;
  Shape shape;
  Strides strides;
  int64_t offset = 0;
};

// Of [4, 16, 8, 8], row-major.
const View views[] = {
    {"flatten", {4, 1024}, {1024, 1}},
    {"flatten pixels", {4, 16, 64}, {1024, 64, 1}},
    {"patches", {4, 64, 16}, {1024, 1, 64}},
    {"permute", {4, 8, 8, 16}, {1024, 8, 1, 64}},
    {"unsqueeze", {4, 1, 16, 8, 8}, {1024, 1024, 64, 8, 1}},
    {"slice of channels", {4, 5, 8, 8}, {1024, 64, 8, 1}, 3 * 64},
    {"group of channels", {4, 8, 8, 8}, {1024, 64, 8, 1}, 8 * 64},
    {"every other row", {4, 16, 4, 8}, {1024, 64, 16, 1}},
    {"select", {16, 8, 8}, {64, 8, 1}, 2 * 1024},
    {"one channel", {4, 8, 8}, {1024, 8, 1}, 9 * 64},
    {"expand", {3, 4, 16, 8, 8}, {0, 1024, 64, 8, 1}},
    {"whole", {4, 16, 8, 8}, {1024, 64, 8, 1}},
};

TEST(Layouts, AnOutputMayBeAnyViewOfAConvolution) {
  for (const View& view : views) {
    for (const bool update : {false, true}) {
      SCOPED_TRACE(view.name);
      Net net;
      net.graph.add_output("y", net.build.view(net.y, view.shape, view.strides, view.offset));
      if (update) net.add_update();
      expect_right(net.graph);
    }
  }
}

TEST(Layouts, AStateMayTakeAnyViewOfAConvolution) {
  for (const View& view : views) {
    for (const bool update : {false, true}) {
      SCOPED_TRACE(view.name);
      Net net;
      net.graph.add_state(StateKind::buffer, "seen", {DType::f32, view.shape});
      const ValueId seen = net.build.view(net.y, view.shape, view.strides, view.offset);
      net.graph.states()[1].after_update = seen;
      if (!update) net.graph.states()[1].after_micro_batch = seen;
      net.add_update();
      expect_right(net.graph);
    }
  }
}

// As many elements as the images, with fewer dimensions: one image of one column.
TEST(Layouts, AnOperandMayHaveFewerDimensionsThanTheImages) {
  Net net;
  const ValueId image = net.build.view(net.y, {1, 16, 8, 1}, {1024, 64, 8, 1});
  const ValueId w = net.graph.add_input(InputKind::data, "v", {DType::f32, {16, 16, 1, 1}});
  const std::vector<int64_t> one = {1, 1}, none = {0, 0};
  const ValueId y =
      net.build.add("conv", {image, w}, {{"stride", one}, {"padding", none}, {"dilation", one}});
  const ValueId p = net.graph.add_input(InputKind::data, "p", {DType::f32, {16, 8, 1}});
  net.graph.add_output("y", net.build.add("mul", {y, p}));
  expect_right(net.graph);
}

// A state that convolutions read lies in their layout, whatever it takes.
TEST(Layouts, FiltersMayBeReplacedByAnything) {
  for (const bool turned : {false, true}) {
    Net net;
    const ValueId taken = net.graph.add_input(InputKind::data, "new", {DType::f32, {16, 16, 3, 3}});
    net.graph.add_output("y", net.y);
    const ValueId other =
        turned ? net.build.permute(taken, std::vector<int64_t>{1, 0, 3, 2}) : taken;
    net.graph.states()[0].after_micro_batch = net.graph.states()[0].after_update = other;
    expect_right(net.graph);
  }
}

// Products beside convolutions, on either side and of every rank, with gradients by hand.
TEST(Layouts, ProductsMayStandBesideConvolutions) {
  for (const int64_t size : {3, 8, 16, 24}) {
    SCOPED_TRACE(size);
    Net net;
    const ValueId p = net.graph.add_input(InputKind::data, "p", {DType::f32, {64, 8, size}});
    const ValueId q = net.graph.add_input(InputKind::data, "q", {DType::f32, {4, 64, size}});
    const ValueId on_images = net.build.add("matmul", {net.build.reshape(net.y, {64, 8, 8}), p});
    net.graph.add_output("images", on_images);
    net.graph.add_output("tanh", net.build.add("tanh", {on_images}));
    const ValueId pixels = net.build.reshape(net.y, {4, 16, 64});
    const ValueId rows = net.build.add("matmul", {pixels, q});
    net.graph.add_output("rows", rows);
    const ValueId gram =
        net.build.add("matmul", {pixels, net.build.permute(pixels, std::vector<int64_t>{0, 2, 1})});
    net.graph.add_output("gram", net.build.add("tanh", {gram}));
    const ValueId back = net.build.add("matmul", {gram, pixels});
    net.graph.add_output("sum",
                         net.build.add("add", {net.build.reshape(back, {4, 16, 8, 8}), net.y}));
    net.add_update();
    expect_right(net.graph);
  }
}

}  // namespace
}  // namespace tessera::cpu
