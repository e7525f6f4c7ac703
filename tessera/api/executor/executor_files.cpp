// How an executor is saved, and how it takes a program that was.
#include <ATen/ATen.h>

#include "tessera/api/executor/executor.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/files/source_lines.h"
#include "tessera/files/versions.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/dispatch.h"

namespace tessera {
namespace {

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// As many micro-batches as a call has, all of them the same.
std::vector<NamedTensor> whole_call(std::vector<NamedTensor> examples, int64_t micro_batches) {
  const NotRecorded quiet;
  for (auto& [name, tensor] : examples) {
    if (micro_batches == 1 || tensor.dim() == 0) continue;
    std::vector<int64_t> times(static_cast<size_t>(tensor.dim()), 1);
    times[0] = micro_batches;
    tensor = tensor.repeat(times);
  }
  return examples;
}

}  // namespace

// Of all states, in the program's types: the device's, or what one would begin with.
std::vector<at::Tensor> Executor::state_values() {
  if (!isAttachedToDevice()) {
    std::vector<at::Tensor> values = weights_.host_values();
    for (at::Tensor& value : optimizer_.first_values()) values.push_back(std::move(value));
    return values;
  }
  const NotRecorded quiet;
  if (optimizer_.has_loaded_state()) send_loaded_state();
  weights_.are_on_device();
  std::vector<at::Tensor> values;
  const Executable& executable = program_.executable();
  for (size_t i = 0; i < executable.states().size(); ++i) {
    const TensorType type = executable.host_type(i);
    values.push_back(at::empty(type.shape, scalar_type_of(type.dtype)));
    program_.session().read_state(i, bytes_of(values.back()));
  }
  return values;
}

void Executor::save(const std::string& path, const SaveRequest& request) {
  const std::lock_guard lock(mutex_);
  check(isCompiled(),
        "save: the model has not been compiled yet; call it, compile() or compileAndExport()");
  const Executable& executable = program_.executable();
  check(executable.graph().node_count() > 0,
        "save: there is nothing to export, for all that forward returns is constant and needs no "
        "device");
  const SavedFacts& facts = program_.facts();
  const std::vector<at::Tensor> states = state_values();
  ExecutableContents contents{.executable = &executable,
                              .options = facts.options,
                              .hyperparameters = optimizer_.hyperparameter_values(),
                              .metadata = request.metadata};
  for (const at::Tensor& state : states) contents.states.push_back(bytes_of(state));
  if (const auto words = rng_state(); request.rng_state && words) {
    contents.rng = isAttachedToDevice() ? program_.session().rng() : rng_;
    contents.metadata[saved::rng_words] = fmt::format("{}", words->size());
  }
  contents.metadata.emplace(saved::version, poptorch_version());
  contents.metadata[saved::purpose] = saved::name_of(purpose_);
  contents.metadata[saved::program] = facts.program;
  contents.metadata[saved::lines] = print_lines(facts.lines);
  if (program_.counts_gradients()) contents.metadata[saved::gradient_counts] = "yes";
  for (size_t i = 0; i < facts.examples.size(); ++i) {
    contents.parts[saved::example_part(i)] = bytes_of(facts.examples[i]);
  }
  for (const auto& [name, part] : request.parts) contents.parts[name] = as_bytes(part);
  const std::string place = path_to_save(path);
  write_executable(place, contents);
  log(LogLevel::info, "saved '{}'", place);
}

void Executor::check_saved(const SavedModel& saved) const {
  check(!isCompiled(), "loadExecutable: the model is compiled already; call destroy() first");
  saved.check_version();
  saved.check_purpose(purpose_);
}

void Executor::load_when_compiled(std::shared_ptr<const SavedModel> saved,
                                  bool with_optimizer_state) {
  const std::lock_guard lock(mutex_);
  check_saved(*saved);
  options_.unfreeze();
  drop_offline_target(options_);
  options_.freeze();
  optimizer_.count_gradients(saved->file().metadata(saved::gradient_counts).has_value());
  to_load_ = std::move(saved);
  load_optimizer_state_ = with_optimizer_state;
}

void Executor::loadExecutable(std::shared_ptr<const SavedModel> saved, bool with_optimizer_state) {
  check_callable();
  const std::lock_guard lock(mutex_);
  const ErrorContext where("loading '{}'", saved->path());
  check_saved(*saved);
  const auto inputs = whole_call(saved->example_inputs(), options_.micro_batches());
  load_when_compiled(std::move(saved), with_optimizer_state);
  try {
    compile(inputs);
  } catch (...) {
    to_load_.reset();
    throw;
  }
}

void Executor::loadExecutable(const std::string& path) {
  loadExecutable(std::make_shared<const SavedModel>(path));
}

// The program was taken from the file and is on the device.
void Executor::restore(const SavedModel& saved) {
  const ExecutableFile& file = saved.file();
  if (load_optimizer_state_ && purpose_ == Purpose::training && file.has_states()) {
    optimizer_.restore([&](size_t state) { return saved.state_value(state); });
  }
  if (!file.rng()) return;
  std::vector<int64_t> words = {static_cast<int64_t>(file.rng()->seed)};
  if (file.metadata(saved::rng_words) == "2") {
    words.push_back(static_cast<int64_t>(file.rng()->step));
  }
  restore_rng_state(words);
}

}  // namespace tessera
