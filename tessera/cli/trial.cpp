#include "tessera/cli/trial.h"

#include <utility>

#include "tessera/backend/cpu/memory.h"
#include "tessera/base/error.h"
#include "tessera/base/half.h"
#include "tessera/base/rng.h"
#include "tessera/runtime/environment.h"

namespace tessera {
namespace {

constexpr int most_threads = 1024;  // as for TESSERA_NUM_THREADS

// Floats between 0 and 1; zeros are valid indices and flags.
std::vector<std::byte> made_up(const TensorType& type, uint64_t key) {
  std::vector<std::byte> memory(static_cast<size_t>(bytes(type)));
  if (type.dtype != DType::f32 && type.dtype != DType::f16) return memory;
  for (int64_t i = 0; i < numel(type.shape); ++i) {
    const float value = uniform_from_word(random_words({}, key, static_cast<uint64_t>(i))[0]);
    if (type.dtype == DType::f32) {
      reinterpret_cast<float*>(memory.data())[i] = value;
    } else {
      reinterpret_cast<Half*>(memory.data())[i] = to_half(value);
    }
  }
  return memory;
}

// What comes from outside is kept here, beside the session's memory.
void check_values_fit(const Graph& graph) {
  int64_t left = cpu::physical_memory();
  const auto take = [&](ValueId value) {
    left -= bytes(graph.type(value));
    check(left >= 0, ErrorKind::runtime,
          "the graph's inputs and outputs are larger than the memory of this machine");
  };
  for (const Input& input : graph.inputs()) take(input.value);
  for (const State& state : graph.states()) take(state.initial);
  for (const Output& output : graph.outputs()) take(output.value);
}

std::shared_ptr<const Executable> compile_checked(Graph graph, int64_t runs, int threads) {
  check(runs >= 1, ErrorKind::value, "the number of steps must be at least 1, not {}", runs);
  check(threads >= 1 && threads <= most_threads, ErrorKind::value,
        "the number of threads must be from 1 to {}, not {}", most_threads, threads);
  check_values_fit(graph);
  return compile_patiently(std::move(graph));
}

}  // namespace

std::shared_ptr<const Executable> compile_patiently(Graph graph) {
  ProgressBar bar("compiling", 100, {.leave = false, .show_rate = false});
  int shown = 0;
  CompileOptions options = compile_options_of_environment();
  options.progress = [&](int percent) { bar.advance(percent - std::exchange(shown, percent)); };
  return compile(std::move(graph), options);
}

Trial::Trial(Graph graph, int64_t runs, int threads, int64_t steps)
    : executable_(compile_checked(std::move(graph), runs, threads)),
      session_(executable_, threads),
      bar_("running", steps, {.unit = "step"}) {
  uint64_t key = 0;
  for (size_t i = 0; i < executable_->states().size(); ++i) {
    session_.write_state(i, made_up(executable_->states()[i].type, ++key));
  }
  for (const StepInput& input : executable_->data_inputs()) {
    values_.push_back(made_up(input.type, ++key));
    request_.inputs.push_back(values_.back().data());
  }
  for (const StepOutput& output : executable_->outputs()) {
    values_.emplace_back(static_cast<size_t>(bytes(output.type)));
    request_.outputs.push_back({values_.back().data(), OutputMode::final_value, 1});
  }
}

}  // namespace tessera
