#include "tessera/cli/trial.h"

#include "tessera/base/error.h"
#include "tessera/base/rng.h"
#include "tessera/runtime/compile.h"

namespace tessera {
namespace {

// Floats between 0 and 1; zeros are valid indices and flags.
std::vector<std::byte> made_up(const TensorType& type, uint64_t key) {
  std::vector<std::byte> memory(static_cast<size_t>(bytes(type)));
  if (type.dtype != DType::f32) return memory;
  auto* values = reinterpret_cast<float*>(memory.data());
  for (int64_t i = 0; i < numel(type.shape); ++i) {
    values[i] = uniform_from_word(random_words({}, key, static_cast<uint64_t>(i))[0]);
  }
  return memory;
}

std::shared_ptr<const Executable> compile_checked(Graph graph, int64_t runs, int threads) {
  check(runs >= 1, ErrorKind::value, "at least one run is needed, not {}", runs);
  check(threads >= 1, ErrorKind::value, "at least one thread is needed, not {}", threads);
  return compile(std::move(graph));
}

}  // namespace

Trial::Trial(Graph graph, int64_t runs, int threads)
    : executable_(compile_checked(std::move(graph), runs, threads)),
      session_(executable_, threads) {
  uint64_t key = 0;
  for (size_t i = 0; i < executable_->states().size(); ++i) {
    session_.write_state(i, made_up(executable_->states()[i].type, ++key));
  }
  for (const NamedType& input : executable_->data_inputs()) {
    values_.push_back(made_up(input.type, ++key));
    request_.inputs.push_back(values_.back().data());
  }
  for (const NamedType& output : executable_->outputs()) {
    values_.emplace_back(static_cast<size_t>(bytes(output.type)));
    request_.outputs.push_back({values_.back().data(), OutputMode::final_value, 1});
  }
}

}  // namespace tessera
