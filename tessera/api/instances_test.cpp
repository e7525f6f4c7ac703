// Sessions of several instances, which are threads here: the same numbers as one with all replicas.
#include "tessera/api/instances.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/dist/local_transport_for_test.h"
#include "tessera/passes/read_graph.h"
#include "tessera/runtime/compile.h"
#include "tessera/runtime/session.h"

namespace tessera {
namespace {

// w -= the mean over replicas of what each summed up of its x * w; what was drawn comes out.
constexpr std::string_view training = R"(graph "training" {
  input data "x" %0: f32[40]
  state parameter "w" %1: f32[40] update %7
  state accumulator "sum" %2: f32[40] micro_batch %4 update %8
  %3 = mul(%0, %1) : f32[40]
  %4 = add(%2, %3) : f32[40]
  %5 = uniform(%0) {key = 7} : f32[40]
  update %6 = all_reduce(%4) {mean = true} : f32[40]
  update %7 = sub(%1, %6) : f32[40]
  update %8 = fill() {dtype = f32, shape = [40], value = 0.0} : f32[40]
  output "y" %3
  output "drawn" %5
}
)";

constexpr int64_t size = 40, iterations = 3, accumulation = 2;

struct Outcome {
  std::vector<float> w, y, drawn;  // the latter by iteration, step and replica

  bool operator==(const Outcome&) const = default;
};

std::span<std::byte> bytes_of(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}

float input(int64_t micro_batch, int64_t replica, int64_t i) {
  return 0.01F * static_cast<float>((micro_batch * 31 + replica * 7 + i * 3) % 17 - 6);
}

// The part of one instance.
Outcome train(dist::Link* link, int instances, int replicas, bool overlap, float first) {
  Graph graph = read_graph(training);
  StepSignature signature = signature_of(graph, accumulation);
  signature.replicas = replicas;
  signature.instances = instances;
  const InstancesOfProgram joined =
      link ? InstancesOfProgram{link, link->open_program("'it'"), overlap} : InstancesOfProgram{};
  Session session(compile(std::move(graph), std::move(signature)), 1, joined);
  Outcome outcome{std::vector<float>(size, first), {}, {}};
  session.write_state(0, bytes_of(outcome.w));
  session.set_rng({.seed = 42, .step = 5});
  const int index = link ? link->index() : 0;
  std::vector<float> x;
  for (int64_t m = 0; m < iterations * accumulation; ++m) {
    for (int64_t r = 0; r < replicas; ++r) {
      for (int64_t i = 0; i < size; ++i) x.push_back(input(m, index * replicas + r, i));
    }
  }
  outcome.y.resize(x.size());
  outcome.drawn.resize(x.size());
  session.run({.device_iterations = iterations,
               .inputs = {bytes_of(x).data()},
               .outputs = {{bytes_of(outcome.y).data(), OutputMode::all},
                           {bytes_of(outcome.drawn).data(), OutputMode::all}}});
  session.read_state(0, bytes_of(outcome.w));
  return outcome;
}

// What the instances returned, side by side as the replicas of one.
Outcome together(const std::vector<Outcome>& parts, int replicas) {
  Outcome all{parts[0].w, {}, {}};
  for (int64_t m = 0; m < iterations * accumulation; ++m) {
    for (const Outcome& part : parts) {
      EXPECT_EQ(part.w, all.w);
      const auto begin = m * replicas * size, end = (m + 1) * replicas * size;
      all.y.insert(all.y.end(), part.y.begin() + begin, part.y.begin() + end);
      all.drawn.insert(all.drawn.end(), part.drawn.begin() + begin, part.drawn.begin() + end);
    }
  }
  return all;
}

Outcome train(int instances, int replicas, bool overlap = true, bool equal = true) {
  dist::LocalNetwork network(instances);
  std::vector<Outcome> parts(static_cast<size_t>(instances));
  std::vector<std::thread> threads;
  for (int i = 0; i < instances; ++i) {
    threads.emplace_back([&, i] {
      dist::Link link([&, i] { return network.transport(i); }, {.piece_bytes = 64});
      const float first = equal ? 1.5F : 1.5F + static_cast<float>(i);
      parts[static_cast<size_t>(i)] = train(&link, instances, replicas, overlap, first);
      link.close();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return together(parts, replicas);
}

TEST(Instances, HaveTheNumbersOfOneWithAllReplicas) {
  for (const int replicas : {2, 4, 8}) {
    const Outcome expected = together({train(nullptr, 1, replicas, true, 1.5F)}, replicas);
    for (const int instances : {2, 4}) {
      if (replicas % instances != 0) continue;
      for (const bool overlap : {true, false}) {
        EXPECT_EQ(train(instances, replicas / instances, overlap), expected)
            << instances << " of " << replicas;
      }
    }
  }
}

TEST(Instances, BeginWithTheWeightsOfTheFirst) {
  EXPECT_EQ(train(2, 1, true, false), train(2, 1, true, true));
}

TEST(Instances, AProgramKnowsForHowManyItWasMade) {
  Graph graph = read_graph(training);
  StepSignature signature = signature_of(graph, accumulation);
  signature.instances = 2;
  const auto executable = compile(std::move(graph), std::move(signature));
  EXPECT_THROW(Session(executable, 1), Error);
}

}  // namespace
}  // namespace tessera
