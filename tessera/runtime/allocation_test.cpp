// Nothing is allocated while a step runs, but for what oneDNN allocates for itself: see
// count_onednn_for_test.h. Steps of models, as they were captured, and one that needs oneDNN.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "tessera/backend/cpu/kernels/onednn/count_onednn_for_test.h"
#include "tessera/base/checkout_for_test.h"
#include "tessera/base/count_allocations_for_test.h"
#include "tessera/base/text_files_for_test.h"
#include "tessera/ops/builder.h"
#include "tessera/passes/read_graph.h"
#include "tessera/runtime/environment.h"
#include "tessera/runtime/session.h"

#ifdef TESSERA_COUNTS_ALLOCATIONS

namespace tessera {
namespace {

Graph captured(const std::string& file) {
  const std::filesystem::path folder = source_folder() / "tessera/runtime/testdata";
  return read_graph(text_of_file(folder / file));
}

Attrs window(int64_t stride, int64_t padding) {
  return {{"stride", std::vector<int64_t>{stride, stride}},
          {"padding", std::vector<int64_t>{padding, padding}},
          {"dilation", std::vector<int64_t>{1, 1}},
          {"groups", int64_t{1}}};
}

// A convolution in large steps, a mean and a product, with gradients by hand: each of oneDNN's
// three kernels where there are no better ones.
Graph strided_convolution() {
  Graph graph;
  Builder build(graph);
  const ValueId x = graph.add_input(InputKind::data, "x", {DType::f32, {4, 16, 20, 20}});
  const ValueId w = graph.add_state(StateKind::parameter, "w", {DType::f32, {32, 16, 3, 3}});
  const ValueId y = build.add("conv", {x, w}, window(2, 1));
  graph.add_output("y", build.add("mean", {y}, {{"dim", std::vector<int64_t>{2, 3}}}));
  Attrs backward = window(2, 1);
  backward.set("input_size", std::vector<int64_t>{16, 20, 20});
  graph.add_output("dx", build.add("conv_input_grad", {y, w}, backward));
  backward = window(2, 1);
  backward.set("kernel_size", std::vector<int64_t>{3, 3});
  const ValueId gradient = build.add("conv_weight_grad", {y, x}, backward);
  build.set_place({}, Phase::update);
  graph.states()[0].after_update = build.add("add", {w, gradient}, {{"alpha", -1e-3}});
  return graph;
}

// The first steps may fill what threads keep, and one of them may come late.
void expect_no_allocations(const Graph& graph) {
  for (const int threads : {1, 2}) {
    Session session(compile(graph, compile_options_of_environment()), threads);
    const Executable& executable = session.executable();
    std::vector<std::vector<std::byte>> values;
    const auto room = [&](const TensorType& type) {
      return values.emplace_back(static_cast<size_t>(2 * bytes(type))).data();
    };
    RunRequest request;
    request.device_iterations = 2;
    for (const StepInput& input : executable.data_inputs()) {
      request.inputs.push_back(room(input.type));
    }
    for (const StepOutput& output : executable.outputs()) {
      request.outputs.push_back({room(output.type), OutputMode::all, 1});
    }
    request.poll = [] {};
    int64_t fewest = std::numeric_limits<int64_t>::max();
    for (int i = 0; i < 30 && fewest > 0; ++i) {
      const AllocationsSince before;
      session.run(request);
      fewest = std::min(fewest, before.blocks());
    }
    EXPECT_EQ(fewest, 0) << "blocks of memory in every run, " << threads << " threads";
  }
}

TEST(Session, AllocatesNothingInAStep) {
  for (const char* file : {"cnn.ir", "mlp.ir"}) {
    SCOPED_TRACE(file);
    expect_no_allocations(captured(file));
  }
}

TEST(Session, AllocatesNothingInAStepWithOnednn) { expect_no_allocations(strided_convolution()); }

}  // namespace
}  // namespace tessera

#endif
