#include "tessera/runtime/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "tessera/base/error.h"
#include "tessera/ops/builder.h"
#include "tessera/runtime/environment.h"

namespace tessera {
namespace {

constexpr int64_t batch = 4, width = 300;

std::vector<float> random_values(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = uniform(random);
  return values;
}

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::vector<float> state_of(const Session& session, size_t index) {
  std::vector<float> values(
      static_cast<size_t>(numel(session.executable().states()[index].type.shape)));
  session.read_state(index, std::as_writable_bytes(std::span(values)));
  return values;
}

// y = x w; w learns from the sum of x^T y over the micro-batches of an update; `seen` counts
// micro-batches as batch norm's statistics would.
Graph training_step() {
  Graph graph;
  Builder build(graph);
  const ValueId x = graph.add_input(InputKind::data, "x", {DType::f32, {batch, width}});
  const ValueId rate = graph.add_input(InputKind::hyperparameter, "rate", {DType::f32, {}});
  const ValueId w = graph.add_state(StateKind::parameter, "w", {DType::f32, {width, width}});
  const ValueId sum = graph.add_state(StateKind::accumulator, "sum", {DType::f32, {width, width}});
  const ValueId seen = graph.add_state(StateKind::buffer, "seen", {DType::f32, {}});
  const ValueId y = build.add("matmul", {x, w});
  const ValueId grad = build.add("matmul", {build.permute(x, std::vector<int64_t>{1, 0}), y});
  const ValueId total = build.add("add", {sum, grad});
  const ValueId count = build.add("add", {seen, build.scalar(1, DType::f32)});
  graph.add_output("y", y);
  graph.add_output("positive", build.add("gt", {y, build.scalar(0, DType::f32)}));
  graph.add_output("count", build.add("cast", {count}, {{"dtype", DType::i32}}));
  graph.states()[1].after_micro_batch = total;
  graph.states()[2].after_micro_batch = graph.states()[2].after_update = count;
  build.set_place({}, Phase::update);
  graph.states()[0].after_update = build.add("sub", {w, build.add("mul", {total, rate})});
  graph.states()[1].after_update = build.add(
      "fill", {}, {{"shape", Shape{width, width}}, {"value", 0.0}, {"dtype", DType::f32}});
  return graph;
}

struct Results {
  std::vector<float> y;
  std::vector<uint8_t> positive;
  std::vector<int32_t> count;
  std::vector<float> w, sum, seen;

  bool operator==(const Results&) const = default;
};

std::unique_ptr<Session> trained_session(int64_t accumulation = 1, int threads = 1) {
  Graph graph = training_step();
  StepSignature signature = signature_of(graph, accumulation);
  auto session = std::make_unique<Session>(
      compile(std::move(graph), std::move(signature), compile_options_of_environment()), threads);
  session->write_state(0, bytes_of(random_values(width * width, 1)));
  session->set_hyperparameter(0, 1e-4F);
  return session;
}

struct RunSpec {
  int64_t device_iterations = 1, gradient_accumulation = 1;
  OutputMode mode = OutputMode::all;
  int64_t period = 1;
  std::function<void()> poll = {};
};

Results run(Session& session, const RunSpec& spec, const std::vector<float>& x, int64_t skip = 0) {
  const auto kept = static_cast<size_t>(
      outputs_kept(spec.mode, spec.period, {spec.device_iterations, spec.gradient_accumulation}));
  Results results;
  results.y.resize(kept * batch * width);
  results.positive.resize(kept * batch * width);
  results.count.resize(kept);
  RunRequest request;
  request.device_iterations = spec.device_iterations;
  request.gradient_accumulation = spec.gradient_accumulation;
  request.poll = spec.poll;
  request.inputs = {reinterpret_cast<const std::byte*>(x.data() + skip * batch * width)};
  for (void* data :
       {static_cast<void*>(results.y.data()), static_cast<void*>(results.positive.data()),
        static_cast<void*>(results.count.data())}) {
    request.outputs.push_back({static_cast<std::byte*>(data), spec.mode, spec.period});
  }
  session.run(request);
  results.w = state_of(session, 0);
  results.sum = state_of(session, 1);
  results.seen = state_of(session, 2);
  return results;
}

const std::vector<float>& six_micro_batches() {
  static const std::vector<float> x = random_values(6 * batch * width, 2);
  return x;
}

TEST(Session, KnowsWhatGoesInAndOut) {
  const auto executable = compile(training_step(), compile_options_of_environment());
  ASSERT_EQ(executable->data_inputs().size(), 1U);
  EXPECT_EQ(executable->data_inputs()[0].name, "x");
  EXPECT_EQ(executable->hyperparameters().at(0).name, "rate");
  EXPECT_EQ(executable->outputs().at(2).type, (TensorType{DType::i32, {}}));
  EXPECT_EQ(executable->states().at(1).kind, StateKind::accumulator);
}

TEST(Session, RunsTheUpdateOnceForAllAccumulationSteps) {
  auto session = trained_session(3);
  const Results all = run(*session, {1, 3}, six_micro_batches());
  // By hand, in double.
  const auto w = random_values(width * width, 1);
  std::vector<double> sum(width * width, 0);
  for (int64_t row = 0; row < 3 * batch; ++row) {
    const float* x = &six_micro_batches()[static_cast<size_t>(row * width)];
    for (int64_t j = 0; j < width; ++j) {
      double y = 0;
      for (int64_t k = 0; k < width; ++k) y += double{x[k]} * w[static_cast<size_t>(k * width + j)];
      ASSERT_NEAR(all.y[static_cast<size_t>(row * width + j)], y, 1e-4);
      for (int64_t k = 0; k < width; ++k) sum[static_cast<size_t>(k * width + j)] += x[k] * y;
    }
  }
  for (size_t i = 0; i < sum.size(); ++i) {
    ASSERT_NEAR(all.w[i], w[i] - 1e-4 * sum[i], 1e-5);
    ASSERT_EQ(all.sum[i], 0);
  }
  EXPECT_EQ(all.seen, std::vector<float>{3});
  EXPECT_EQ(all.count, (std::vector<int32_t>{1, 2, 3}));
}

TEST(Session, DeviceIterationsAreTheSameAsSeveralRuns) {
  auto at_once = trained_session(2);
  const Results all = run(*at_once, {3, 2}, six_micro_batches());
  auto step_by_step = trained_session(2);
  Results last;
  for (int64_t i = 0; i < 3; ++i) {
    last = run(*step_by_step, {1, 2}, six_micro_batches(), 2 * i);
  }
  EXPECT_EQ(all.w, last.w);
  EXPECT_EQ(all.seen, last.seen);
  EXPECT_TRUE(std::equal(last.y.begin(), last.y.end(), all.y.begin() + 4 * batch * width));
  EXPECT_EQ(at_once->rng().step, 6U);
}

TEST(Session, HasTheSameBitsForAnyNumberOfThreads) {
  const RunSpec request{3, 2};
  auto one = trained_session(2);
  const Results expected = run(*one, request, six_micro_batches());
  for (const int threads : {2, 3}) {
    auto session = trained_session(2, threads);
    EXPECT_EQ(run(*session, request, six_micro_batches()), expected) << threads;
  }
}

TEST(Session, OutputModesKeepWhatTheyPromise) {
  const RunSpec request{3, 2};
  auto session = trained_session(2);
  const Results all = run(*session, request, six_micro_batches());
  const size_t one = batch * width;
  ASSERT_EQ(all.y.size(), 6 * one);

  RunSpec last = request;
  last.mode = OutputMode::final_value;
  const Results final_value = run(*trained_session(2), last, six_micro_batches());
  EXPECT_EQ(final_value.y, std::vector<float>(all.y.end() - one, all.y.end()));
  EXPECT_EQ(final_value.count, std::vector<int32_t>{6});

  RunSpec third = request;
  third.mode = OutputMode::every_n;
  third.period = 3;
  const Results every_third = run(*trained_session(2), third, six_micro_batches());
  EXPECT_EQ(every_third.y, std::vector<float>(all.y.end() - 2 * one, all.y.end()));
  EXPECT_EQ(every_third.count, (std::vector<int32_t>{5, 6}));
  third.period = 1;
  EXPECT_EQ(run(*trained_session(2), third, six_micro_batches()), all);

  RunSpec added = request;
  added.mode = OutputMode::sum;
  const Results sum = run(*trained_session(2), added, six_micro_batches());
  EXPECT_EQ(sum.count, std::vector<int32_t>{21});
  for (size_t i = 0; i < one; ++i) {
    float y = all.y[i];
    bool positive = all.positive[i];
    for (size_t k = 1; k < 6; ++k) {
      y += all.y[k * one + i];
      positive = positive || all.positive[k * one + i];
    }
    ASSERT_EQ(sum.y[i], y);
    ASSERT_EQ(sum.positive[i], positive);
  }
}

TEST(Session, APeriodThatDoesNotDivideLeavesTheRestOut) {
  EXPECT_EQ(outputs_kept(OutputMode::every_n, 2, {3, 2}), 2);
  const Results second =
      run(*trained_session(2), {3, 2, OutputMode::every_n, 2}, six_micro_batches());
  EXPECT_EQ(second.count, (std::vector<int32_t>{3, 4}));
}

// The accumulator changes in place before the loss refuses a label.
TEST(Session, AnErrorLeavesParametersAloneAndTheSessionUsable) {
  Graph graph;
  Builder build(graph);
  const ValueId label = graph.add_input(InputKind::data, "label", {DType::i32, {2}});
  const ValueId w = graph.add_state(StateKind::parameter, "w", {DType::f32, {2, 3}});
  const ValueId sum = graph.add_state(StateKind::accumulator, "sum", {DType::f32, {2, 3}});
  const ValueId total = build.add("add", {sum, w});
  graph.states()[1].after_micro_batch = total;
  const auto losses = build.add_all("nll_loss_forward", {w, label, {}},
                                    {{"reduction", int64_t{1}}, {"ignore_index", int64_t{-100}}});
  graph.add_output("loss", losses[0]);
  build.set_place({"model.py", 7, "", false}, Phase::update);
  graph.states()[0].after_update = build.add("neg", {total});
  graph.states()[1].after_update =
      build.add("fill", {}, {{"shape", Shape{2, 3}}, {"value", 0.0}, {"dtype", DType::f32}});

  Session session(compile(graph, signature_of(graph, 2), compile_options_of_environment()), 2);
  const std::vector<float> before = {1, 2, 3, 4, 5, 6};
  session.write_state(0, bytes_of(before));
  std::vector<int32_t> labels = {0, 1, 0, 7};
  float loss = 0;
  RunRequest request;
  request.inputs = {reinterpret_cast<const std::byte*>(labels.data())};
  request.outputs = {{reinterpret_cast<std::byte*>(&loss), OutputMode::sum, 1}};
  EXPECT_THROW(session.run(request), Error);
  EXPECT_EQ(state_of(session, 0), before);
  EXPECT_EQ(state_of(session, 1), std::vector<float>(6, 0));

  labels.back() = 2;
  session.run(request);
  EXPECT_EQ(loss, -(1 + 5) / 2.0F - (1 + 6) / 2.0F);
  EXPECT_EQ(state_of(session, 0), (std::vector<float>{-2, -4, -6, -8, -10, -12}));
}

TEST(Session, AccumulatesOnlyWhereTheStepDoes) {
  Graph graph;
  Builder build(graph);
  const TensorType type{DType::f32, {2}};
  const ValueId x = graph.add_input(InputKind::data, "x", type);
  const ValueId rate = graph.add_input(InputKind::hyperparameter, "rate", {DType::f32, {2}});
  const ValueId w = graph.add_state(StateKind::parameter, "w", type);
  build.set_place({}, Phase::update);
  graph.states()[0].after_update =
      build.add("sgd", {w, x, {}, {}, rate, rate, rate, rate}, {{"nesterov", false}});
  EXPECT_THROW(compile(graph, signature_of(graph, 2)), Error);
  Session session(compile(graph, compile_options_of_environment()), 1);
  const std::vector<float> batches = {1, 2, 3, 4};
  RunRequest request;
  request.inputs = {reinterpret_cast<const std::byte*>(batches.data())};
  request.device_iterations = 2;
  session.run(request);
  request.gradient_accumulation = 2;
  EXPECT_THROW(session.run(request), Error);
}

TEST(Session, RunsWithTheAccumulationThatWasCompiled) {
  auto session = trained_session(2);
  const auto other = [&](int64_t accumulation) {
    try {
      run(*session, {1, accumulation}, six_micro_batches());
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  EXPECT_EQ(other(3),
            "This step was compiled with a gradient accumulation of 2, and cannot run with 3.");
  EXPECT_NE(other(1), "");
  EXPECT_EQ(other(2), "");
}

TEST(Session, RunsAsOftenAsTheSignatureSaysUnlessToldOtherwise) {
  Graph graph = training_step();
  StepSignature signature = signature_of(graph, 2);
  signature.device_iterations = 3;
  Session session(compile(std::move(graph), std::move(signature), compile_options_of_environment()),
                  1);
  RunRequest request;
  request.inputs = {reinterpret_cast<const std::byte*>(six_micro_batches().data())};
  Results results;
  results.y.resize(6 * batch * width);
  results.positive.resize(6 * batch * width);
  results.count.resize(6);
  request.outputs = {{reinterpret_cast<std::byte*>(results.y.data())},
                     {reinterpret_cast<std::byte*>(results.positive.data())},
                     {reinterpret_cast<std::byte*>(results.count.data())}};
  session.run(request);
  EXPECT_EQ(session.rng().step, 6U);
  request.device_iterations = 1;
  session.run(request);
  EXPECT_EQ(session.rng().step, 8U);
  request.device_iterations = 0;
  EXPECT_THROW(session.run(request), Error);
}

// The rows for training write their states where they lie.
TEST(Session, OptimizerAndStatisticsWorkInPlace) {
  Graph graph;
  Builder build(graph);
  const auto scalar = [&](const char* name) {
    return graph.add_input(InputKind::hyperparameter, name, {DType::f32, {2}});
  };
  const TensorType type{DType::f32, {3}};
  const ValueId x = graph.add_input(InputKind::data, "x", {DType::f32, {4, 3, 2, 2}});
  const ValueId w = graph.add_state(StateKind::parameter, "w", type);
  const ValueId velocity = graph.add_state(StateKind::optimizer, "velocity", type);
  const ValueId mean = graph.add_state(StateKind::buffer, "mean", type);
  const ValueId var = graph.add_state(StateKind::buffer, "var", type);
  const ValueId step = graph.add_state(StateKind::optimizer, "step", {DType::f32, {}});
  const auto norm = build.add_all("batch_norm", {x, w, {}, mean, var},
                                  {{"training", true}, {"momentum", 0.1}, {"eps", 1e-5}});
  graph.add_output("y", norm[0]);
  graph.states()[2].after_micro_batch = graph.states()[2].after_update = norm[3];
  graph.states()[3].after_micro_batch = graph.states()[3].after_update = norm[4];
  build.set_place({}, Phase::update);
  const auto next = build.add_all("sgd", {w, norm[1], step, velocity, scalar("lr"), scalar("m"),
                                          scalar("damp"), scalar("decay")});
  graph.states()[0].after_update = next[0];
  graph.states()[4].after_update = next[1];
  graph.states()[1].after_update = next[2];

  const auto executable = compile(std::move(graph), compile_options_of_environment());
  for (const cpu::Call& call : executable->plan().calls) EXPECT_NE(call.op, "copy");
  Session session(executable, 1);
  session.write_state(0, bytes_of(std::vector<float>{1, 1, 1}));
  session.set_hyperparameter(0, 0.5F);
  session.set_hyperparameter(1, 0.9F);
  std::vector<float> input(48), output(48);
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i / 4 % 3);
  RunRequest request;
  request.inputs = {reinterpret_cast<const std::byte*>(input.data())};
  request.outputs = {{reinterpret_cast<std::byte*>(output.data())}};
  session.run(request);
  // Every channel is its own mean: 0, 1, 2.
  EXPECT_EQ(state_of(session, 2), (std::vector<float>{0, 0.1F, 0.2F}));
  EXPECT_EQ(state_of(session, 0), (std::vector<float>{1, 0.5F, 0}));
  EXPECT_EQ(state_of(session, 1), (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(state_of(session, 4), std::vector<float>{1});
}

TEST(Session, StatesMustHaveTheirSize) {
  auto session = trained_session();
  EXPECT_THROW(session->write_state(0, bytes_of(std::vector<float>(3))), Error);
}

TEST(Session, AProgramThatCallsPyTorchSaysSoWhereThereIsNone) {
  Graph graph;
  Builder builder(graph);
  const ValueId x = graph.add_input(InputKind::data, "x", {DType::f32, {2}});
  graph.add_output(
      "y", builder.add("aten", {x},
                       {{"overload", "aten::lgamma"}, {"arguments", "$0"}, {"results", "f32[2]"}}));
  const auto executable = compile(std::move(graph), compile_options_of_environment());
  try {
    const Session session(executable, 1);
    FAIL() << "it started";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("aten::lgamma"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("PyTorch is not loaded"), std::string::npos);
  }
}

TEST(Session, PollStopsARunAndTheSessionGoesOn) {
  const auto session = trained_session();
  const auto expected = run(*trained_session(), {}, six_micro_batches());
  RunSpec stopped;
  stopped.poll = [] { throw std::runtime_error("stop"); };
  EXPECT_THROW(run(*session, stopped, six_micro_batches()), std::runtime_error);
  EXPECT_EQ(run(*session, {}, six_micro_batches()).w, expected.w);
}

TEST(Session, ProgressEndsAtAHundred) {
  std::vector<int> percents;
  compile(training_step(),
          {.disabled_passes = {}, .progress = [&](int p) { percents.push_back(p); }});
  ASSERT_FALSE(percents.empty());
  EXPECT_EQ(percents.front(), 0);
  EXPECT_EQ(percents.back(), 100);
  EXPECT_TRUE(std::is_sorted(percents.begin(), percents.end()));
}

}  // namespace
}  // namespace tessera
