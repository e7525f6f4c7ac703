// What a run can be asked for beside its outputs: states after updates, times, checks of values.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/ops/builder.h"
#include "tessera/runtime/environment.h"
#include "tessera/runtime/session.h"

namespace tessera {
namespace {

std::byte* bytes_of(std::vector<float>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

// w = w - sum of the micro-batches' x; y = x / w.
Graph step() {
  Graph graph;
  Builder build(graph);
  const TensorType type{DType::f32, {2}};
  const ValueId x = graph.add_input(InputKind::data, "x", type);
  const ValueId w = graph.add_state(StateKind::parameter, "w", type);
  const ValueId sum = graph.add_state(StateKind::accumulator, "sum", type);
  const ValueId total = build.add("add", {sum, x});
  graph.add_output("y", build.add("div", {x, w}));
  graph.states()[1].after_micro_batch = total;
  build.set_place({}, Phase::update);
  graph.states()[0].after_update = build.add("sub", {w, total});
  graph.states()[1].after_update =
      build.add("fill", {}, {{"shape", Shape{2}}, {"value", 0.0}, {"dtype", DType::f32}});
  return graph;
}

struct Trial {
  std::vector<float> x, y, w;
  std::vector<MicroBatchTimes> times;
  RunRequest request;

  Trial(OutputMode mode, int64_t period, int64_t iterations, int64_t accumulation) {
    const int64_t all = iterations * accumulation;
    for (int64_t i = 0; i < 2 * all; ++i) x.push_back(static_cast<float>(i + 1));
    y.resize(static_cast<size_t>(2 * all));
    w.resize(static_cast<size_t>(2 * outputs_kept(mode, period, {iterations, 1})));
    request.device_iterations = iterations;
    request.gradient_accumulation = accumulation;
    request.inputs = {bytes_of(x)};
    request.outputs = {{bytes_of(y), OutputMode::all, 1}};
    request.states = {{0, {bytes_of(w), mode, period}}};
  }
};

std::unique_ptr<Session> session_at(
    float weight, int64_t accumulation,
    const CompileOptions& options = compile_options_of_environment()) {
  Graph graph = step();
  StepSignature signature = signature_of(graph, accumulation);
  auto session =
      std::make_unique<Session>(compile(std::move(graph), std::move(signature), options), 1);
  const std::vector<float> w = {weight, weight};
  session->write_state(0, std::as_bytes(std::span(w)));
  return session;
}

// spec: 5 All
// spec: 5 EveryN
TEST(SessionRequests, StatesAreReadAfterEveryUpdate) {
  Trial all(OutputMode::all, 1, 4, 2);
  session_at(100, 2)->run(all.request);
  // Micro-batches hold (1,2), (3,4), ...: the first update takes 1+3 and 2+4.
  EXPECT_EQ(all.w, (std::vector<float>{96, 94, 84, 80, 64, 58, 36, 28}));
  Trial every(OutputMode::every_n, 2, 4, 2);
  session_at(100, 2)->run(every.request);
  EXPECT_EQ(every.w, (std::vector<float>{84, 80, 36, 28}));
  Trial final_one(OutputMode::final_value, 1, 4, 2);
  session_at(100, 2)->run(final_one.request);
  EXPECT_EQ(final_one.w, (std::vector<float>{36, 28}));
  Trial sum(OutputMode::sum, 1, 4, 2);
  session_at(100, 2)->run(sum.request);
  EXPECT_EQ(sum.w, (std::vector<float>{280, 260}));
}

// spec: 5 EveryN
TEST(SessionRequests, APeriodThatDoesNotDivideKeepsWholePeriods) {
  Trial run(OutputMode::every_n, 3, 4, 1);
  session_at(100, 1)->run(run.request);
  EXPECT_EQ(run.w.size(), 2U);
  EXPECT_EQ(run.w, (std::vector<float>{100 - 1 - 3 - 5, 100 - 2 - 4 - 6}));
}

// spec: 1.4 getPerfCounters
TEST(SessionRequests, TimesAreInOrder) {
  Trial run(OutputMode::all, 1, 3, 2);
  run.times.resize(6);
  run.request.times = run.times;
  session_at(100, 2)->run(run.request);
  int64_t last = 1;
  for (const MicroBatchTimes& time : run.times) {
    EXPECT_LE(last, time.inputs_requested);
    EXPECT_LE(time.inputs_requested, time.inputs_read);
    EXPECT_LE(time.inputs_read, time.outputs_ready);
    EXPECT_LE(time.outputs_ready, time.outputs_written);
    last = time.outputs_written;
  }
}

std::string failure_of(Session& session, Trial& run) {
  try {
    session.run(run.request);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// spec: 2.4 enableFloatingPointExceptions
TEST(SessionRequests, ValuesThatStopBeingFiniteAreFound) {
  CompileOptions exact = compile_options_of_environment();
  exact.disabled_passes = {"fuse_elementwise", "fuse_updates"};
  Trial run(OutputMode::all, 1, 1, 1);
  auto session = session_at(0, 1, exact);
  EXPECT_EQ(failure_of(*session, run), "");  // off by default
  EXPECT_TRUE(std::isinf(run.y[0]));

  session = session_at(0, 1, exact);
  session->check_values(true);
  EXPECT_NE(failure_of(*session, run).find("div made an infinite value"), std::string::npos);

  run.x = {0, 0};
  run.request.inputs = {bytes_of(run.x)};
  session = session_at(0, 1, exact);
  session->check_values(true);
  EXPECT_NE(failure_of(*session, run).find("div made a NaN"), std::string::npos);

  // What comes in is the user's: only what the program adds to it is an exception.
  run.x = {std::numeric_limits<float>::infinity(), 1};
  run.request.inputs = {bytes_of(run.x)};
  session = session_at(2, 1, exact);
  session->check_values(true);
  EXPECT_EQ(failure_of(*session, run), "");
}

}  // namespace
}  // namespace tessera
