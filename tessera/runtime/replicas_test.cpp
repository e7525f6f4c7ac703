// A program that several replicas run together.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <stdexcept>

#include "tessera/base/error.h"
#include "tessera/passes/read_graph.h"
#include "tessera/runtime/compile.h"
#include "tessera/runtime/session.h"

namespace tessera {
namespace {

// w -= the mean over replicas of what each summed up of its x; y = x * w; what was drawn comes out.
constexpr std::string_view training = R"(graph "training" {
  input data "x" %0: f32[3]
  state parameter "w" %1: f32[3] update %7
  state accumulator "sum" %2: f32[3] micro_batch %4 update %8
  %3 = mul(%0, %1) : f32[3]
  %4 = add(%2, %0) : f32[3]
  %5 = uniform(%0) {key = 7} : f32[3]
  update %6 = all_reduce(%4) {mean = true} : f32[3]
  update %7 = sub(%1, %6) : f32[3]
  update %8 = fill() {dtype = f32, shape = [3], value = 0.0} : f32[3]
  output "y" %3
  output "drawn" %5
}
)";

// An index of 3 or more is an Error in the replica that has it.
constexpr std::string_view failing = R"(graph "failing" {
  input data "i" %0: i32[1]
  state parameter "w" %1: f32[3,1] update %4
  %2 = index_select(%1, %0) {dim = 0} : f32[1,1]
  update %3 = all_reduce(%1) : f32[3,1]
  update %4 = add(%3, %3) : f32[3,1]
  output "picked" %2
}
)";

std::shared_ptr<const Executable> compiled(std::string_view text, int replicas,
                                           int64_t accumulation = 1) {
  Graph graph = read_graph(text);
  StepSignature signature = signature_of(graph, accumulation);
  signature.replicas = replicas;
  return compile(std::move(graph), std::move(signature));
}

std::vector<float> floats_of(const Session& session, size_t replica, size_t count) {
  std::vector<float> values(count);
  session.read_state_of(replica, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

template <typename T>
std::byte* bytes_of(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

struct Outcome {
  std::vector<float> y, drawn;
  std::vector<std::vector<float>> w;  // by replica

  bool operator==(const Outcome&) const = default;
};

std::vector<float> inputs(int64_t count) {
  std::vector<float> x;
  // Large and small ones: sums have other bits in another order.
  for (int64_t i = 0; i < 3 * count; ++i) {
    x.push_back(i % 5 == 0 ? 1e7F + static_cast<float>(i) : 0.1F * static_cast<float>(i - 7));
  }
  return x;
}

Outcome train(int replicas, int64_t iterations, int64_t accumulation, OutputMode mode,
              int threads = 1) {
  Session session(compiled(training, replicas, accumulation), threads);
  const std::vector<float> w = {1, -2, 0.5F};
  session.write_state(0, std::as_bytes(std::span(w)));
  session.set_rng({.seed = 42, .step = 5});
  std::vector<float> x = inputs(iterations * accumulation * replicas);
  const auto kept =
      static_cast<size_t>(3 * outputs_kept(mode, 1, {iterations, accumulation, replicas}));
  Outcome outcome{std::vector<float>(kept), std::vector<float>(kept), {}};
  session.run({.device_iterations = iterations,
               .inputs = {bytes_of(x)},
               .outputs = {{bytes_of(outcome.y), mode}, {bytes_of(outcome.drawn), mode}}});
  EXPECT_EQ(session.rng(), (RngState{42, 5 + static_cast<uint64_t>(iterations * accumulation)}));
  for (int r = 0; r < replicas; ++r) {
    outcome.w.push_back(floats_of(session, static_cast<size_t>(r), 3));
  }
  return outcome;
}

TEST(Replicas, ReadAndWriteMicroBatchesInTheirOrder) {
  const int64_t iterations = 2, accumulation = 3;
  for (const int replicas : {1, 2, 4}) {
    const Outcome outcome = train(replicas, iterations, accumulation, OutputMode::all);
    // By hand, in the order of the arithmetic.
    const std::vector<float> x = inputs(iterations * accumulation * replicas);
    std::vector<float> w = {1, -2, 0.5F};
    size_t at = 0;
    for (int64_t i = 0; i < iterations; ++i) {
      std::vector<std::vector<float>> sums(static_cast<size_t>(replicas), std::vector<float>(3));
      for (int64_t step = 0; step < accumulation; ++step) {
        for (auto& sum : sums) {
          for (size_t e = 0; e < 3; ++e, ++at) {
            EXPECT_EQ(outcome.y[at], x[at] * w[e]) << at;
            sum[e] += x[at];
          }
        }
      }
      for (size_t e = 0; e < 3; ++e) {
        float total = sums[0][e];
        for (size_t r = 1; r < sums.size(); ++r) total += sums[r][e];
        w[e] -= replicas == 1 ? total : total * (1.0F / static_cast<float>(replicas));
      }
    }
    for (const auto& replica : outcome.w) EXPECT_EQ(replica, w) << replicas;
  }
}

TEST(Replicas, HaveTheSameBitsWhoeverIsFirst) {
  for (const int replicas : {2, 4}) {
    const Outcome expected = train(replicas, 3, 2, OutputMode::all);
    for (int run = 0; run < 10; ++run) {
      EXPECT_EQ(train(replicas, 3, 2, OutputMode::all, 1 + run % 3 * 4), expected) << run;
    }
  }
}

TEST(Replicas, HaveAValueEachWhereOutputsAreFewer) {
  const Outcome all = train(2, 2, 2, OutputMode::all);
  const Outcome last = train(2, 2, 2, OutputMode::final_value);
  EXPECT_EQ(last.y, std::vector<float>(all.y.end() - 6, all.y.end()));
  const Outcome sum = train(2, 2, 2, OutputMode::sum);
  ASSERT_EQ(sum.y.size(), 6U);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(sum.y[i], all.y[i] + all.y[6 + i] + all.y[12 + i] + all.y[18 + i]);
  }
}

TEST(Replicas, DrawIndependently) {
  const Outcome alone = train(1, 1, 2, OutputMode::all);
  const Outcome two = train(2, 1, 2, OutputMode::all);
  // Step by step, the first replica draws what a program alone draws.
  for (size_t step = 0; step < 2; ++step) {
    for (size_t e = 0; e < 3; ++e) {
      EXPECT_EQ(two.drawn[6 * step + e], alone.drawn[3 * step + e]);
      EXPECT_NE(two.drawn[6 * step + 3 + e], alone.drawn[3 * step + e]);
    }
  }
}

// One iteration in which all is well, then one in which some replicas fail.
TEST(Replicas, AFailureStopsAllOfThemWithTheSameWeights) {
  for (const int failing_replica : {0, 1, 3}) {
    Session session(compiled(failing, 4), 1);
    const std::vector<float> w = {1, 2, 3};
    session.write_state(0, std::as_bytes(std::span(w)));
    std::vector<int32_t> indices = {0, 1, 2, 0, 0, 1, 2, 0};
    std::vector<float> picked(8);
    indices[static_cast<size_t>(4 + failing_replica)] = 9;
    const RunRequest request{.device_iterations = 2,
                             .inputs = {bytes_of(indices)},
                             .outputs = {{bytes_of(picked), OutputMode::all}}};
    for (int run = 0; run < 5; ++run) {
      session.write_state(0, std::as_bytes(std::span(w)));
      EXPECT_THROW(session.run(request), Error);
      for (size_t r = 0; r < 4; ++r) {
        EXPECT_EQ(floats_of(session, r, 3), (std::vector<float>{8, 16, 24})) << failing_replica;
      }
      EXPECT_EQ(std::vector<float>(picked.begin(), picked.begin() + 4),
                (std::vector<float>{1, 2, 3, 1}));
    }
    // The next run is a run like any other.
    indices[static_cast<size_t>(4 + failing_replica)] = 0;
    session.write_state(0, std::as_bytes(std::span(w)));
    session.run(request);
    EXPECT_EQ(floats_of(session, 3, 3), (std::vector<float>{64, 128, 192}));
  }
}

TEST(Replicas, PollIsAskedInTheCallersThreadAndStopsAll) {
  Session session(compiled(training, 3), 1);
  std::vector<float> x = inputs(3), y(9), drawn(9);
  RunRequest request{.inputs = {bytes_of(x)},
                     .outputs = {{bytes_of(y)}, {bytes_of(drawn)}},
                     .poll = [] { throw std::runtime_error("stop"); }};
  EXPECT_THROW(session.run(request), std::runtime_error);
  request.poll = {};
  session.run(request);
}

// Each group of replicas has its own w; gradients are added up within a group.
TEST(Replicas, OfGroupsHaveValuesOfTheirOwn) {
  constexpr std::string_view grouped = R"(graph "grouped" {
  input data "x" %0: f32[1]
  state parameter "w" %1: f32[1] update %4
  %2 = mul(%0, %1) : f32[1]
  update %3 = all_reduce(%0) {group_size = 2, orthogonal = true} : f32[1]
  update %4 = add(%1, %3) : f32[1]
  output "y" %2
}
)";
  for (const bool of_every_replica : {false, true}) {
    Graph graph = read_graph(grouped);
    StepSignature signature = signature_of(graph);
    signature.replicas = 4;
    signature.grouped_states = {{0, {2, true}, of_every_replica}};
    Session session(compile(std::move(graph), std::move(signature)), 2);
    const std::vector<float> w = {10, 20};
    session.write_state(0, std::as_bytes(std::span(w)));
    std::vector<float> x = {1, 2, 3, 4}, y(4), after(of_every_replica ? 4 : 2);
    session.run({.inputs = {bytes_of(x)}, .outputs = {{bytes_of(y)}}});
    EXPECT_EQ(y, (std::vector<float>{10, 40, 30, 80}));
    session.read_state(0, std::as_writable_bytes(std::span(after)));
    EXPECT_EQ(after, of_every_replica ? (std::vector<float>{14, 26, 14, 26})
                                      : (std::vector<float>{14, 26}));
    session.write_state(0, std::as_bytes(std::span(after)));
    session.run({.inputs = {bytes_of(x)}, .outputs = {{bytes_of(y)}}});
    EXPECT_EQ(y, (std::vector<float>{14, 52, 42, 104}));
    const std::vector<float> three = {1, 2, 3};
    EXPECT_THROW(session.write_state(0, std::as_bytes(std::span(three))), Error);
  }
}

// Weights and what the optimiser remembers are in memory once, so that each of R replicas costs an
// R-th of them; with every replica a copy, R would cost R times as much.
// spec: 12 replicated tensor sharding
TEST(Replicas, ShareWeightsAndOptimiserStates) {
  constexpr std::string_view remembers = R"(graph "remembers" {
  input data "x" %0: f32[4096]
  state parameter "w" %1: f32[4096] update %7
  state optimizer "m" %2: f32[4096] update %6
  state accumulator "sum" %3: f32[4096] micro_batch %4 update %8
  %4 = add(%3, %0) : f32[4096]
  update %5 = all_reduce(%4) {mean = true} : f32[4096]
  update %6 = add(%2, %5) : f32[4096]
  update %7 = sub(%1, %6) : f32[4096]
  update %8 = fill() {dtype = f32, shape = [4096], value = 0.0} : f32[4096]
}
)";
  constexpr int64_t tensor = 4096 * sizeof(float);
  const int64_t alone = Session(compiled(remembers, 1), 1).memory().shared;
  for (const int replicas : {2, 4, 8}) {
    const auto executable = compiled(remembers, replicas, 2);
    const Session::MemoryUse use = Session(executable, 2).memory();
    EXPECT_EQ(use.shared, alone - tensor);  // the accumulator is each replica's own
    EXPECT_EQ(use.of_each, executable->plan().memory.arena_bytes + tensor);
  }
}

TEST(Replicas, UpdateWithAnyNumberOfThreads) {
  const Outcome expected = train(4, 3, 2, OutputMode::all, 1);
  for (const int threads : {2, 3, 4, 8, 9}) {
    EXPECT_EQ(train(4, 3, 2, OutputMode::all, threads), expected) << threads;
  }
}

TEST(Replicas, OfAGroupReadTheSameInputs) {
  for (const bool orthogonal : {false, true}) {
    Graph graph = read_graph(training);
    StepSignature signature = signature_of(graph);
    signature.replicas = 4;
    signature.input_groups = {2, orthogonal};
    Session session(compile(std::move(graph), std::move(signature)), 2);
    const std::vector<float> w = {1, 1, 1};
    session.write_state(0, std::as_bytes(std::span(w)));
    std::vector<float> x = {1, 2, 3, 4, 5, 6}, y(12), drawn(12);
    session.run({.inputs = {bytes_of(x)}, .outputs = {{bytes_of(y)}, {bytes_of(drawn)}}});
    EXPECT_EQ(y, orthogonal ? (std::vector<float>{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6})
                            : (std::vector<float>{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}));
  }
}

TEST(Replicas, ThereIsAtLeastOne) { EXPECT_THROW(compiled(training, 0), Error); }

}  // namespace
}  // namespace tessera
