#include "tessera/files/exported_model.h"

#include <cstring>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/base/thread_pool.h"
#include "tessera/ops/host_call.h"
#include "tessera/runtime/environment.h"

namespace tessera {
namespace {

std::shared_ptr<const Executable> program_of(const ExecutableFile& file, int threads) {
  CompileOptions options;
  options.threads = threads;
  auto program = load_executable(file, options);
  check_host_calls_can_run(program->graph());
  check(file.has_states() || file.states().empty(), ErrorKind::value,
        "'{}' holds a program without the values of its {} states, and cannot be run by itself",
        file.path(), file.states().size());
  return program;
}

int threads_for(int asked) { return asked > 0 ? asked : threads_of_environment(); }

// Values that lie one after the other. A single number has no dimension to put them in.
TensorType several(const TensorType& type, int64_t count) {
  TensorType whole = type;
  if (type.shape.empty() && count > 1) whole.shape.push_back(count);
  const bool counted =
      type.shape.empty() || !__builtin_mul_overflow(type.shape[0], count, &whole.shape[0]);
  check(counted && fits_in_memory(whole), ErrorKind::value,
        "{} micro-batches of {} are more than any memory has", count, to_string(type));
  return whole;
}

template <typename From, typename To>
void convert(std::span<const std::byte> from, std::vector<std::byte>& to, const StepInput& input) {
  for (size_t i = 0; i < from.size() / sizeof(From); ++i) {
    From value;
    std::memcpy(&value, from.data() + i * sizeof value, sizeof value);
    if constexpr (std::is_integral_v<From>) {
      check(value >= std::numeric_limits<To>::min() && value <= std::numeric_limits<To>::max(),
            ErrorKind::value, "input '{}' has the value {}, which needs more than 32 bits",
            input.name, value);
    }
    const auto converted = static_cast<To>(value);
    std::memcpy(to.data() + i * sizeof converted, &converted, sizeof converted);
  }
}

}  // namespace

ExportedModel::ExportedModel(const std::string& path, int threads)
    : file_(path), session_(program_of(file_, threads_for(threads)), threads_for(threads)) {
  restore(session_, file_);
  const StepSignature& signature = session_.executable().signature();
  inputs_ = signature.inputs;
  for (StepInput& input : inputs_) {
    input.type = several({input.host, input.type.shape}, signature.micro_batches_of_inputs());
  }
  narrowed_.resize(inputs_.size());
}

size_t ExportedModel::input_bytes(size_t index) const {
  return static_cast<size_t>(bytes(inputs_.at(index).type));
}

const std::byte* ExportedModel::brought_in(size_t index, std::span<const std::byte> given) {
  const StepInput& input = inputs_[index];
  check(given.size() == input_bytes(index), ErrorKind::value,
        "input '{}' is {}, which has {} bytes; {} came", input.name, to_string(input.type),
        input_bytes(index), given.size());
  if (narrowed(input.host) == input.host) return given.data();
  std::vector<std::byte>& own = narrowed_[index];
  own.resize(given.size() / size_of(input.host) * size_of(narrowed(input.host)));
  if (input.host == DType::i64) {
    convert<int64_t, int32_t>(given, own, input);
  } else {
    convert<double, float>(given, own, input);
  }
  return own.data();
}

std::vector<ModelOutput> ExportedModel::run(std::span<const std::span<const std::byte>> inputs) {
  const StepSignature& signature = session_.executable().signature();
  check(inputs.size() == inputs_.size(), ErrorKind::value, "the model takes {} inputs, {} came",
        inputs_.size(), inputs.size());
  RunRequest request;
  for (size_t i = 0; i < inputs.size(); ++i) request.inputs.push_back(brought_in(i, inputs[i]));
  std::vector<ModelOutput> outputs;
  for (const StepOutput& output : signature.outputs) {
    const TensorType whole =
        several(output.type, outputs_kept(output.mode, output.period, signature.extent()));
    outputs.push_back(
        {output.name, whole, std::vector<std::byte>(static_cast<size_t>(bytes(whole)))});
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const StepOutput& output = signature.outputs[i];
    request.outputs.push_back({outputs[i].bytes.data(), output.mode, output.period});
  }
  session_.run(request);

  std::vector<ModelOutput> returned;
  for (const ReturnedTensor& tensor : signature.returned) {
    if (tensor.output) {
      returned.push_back(outputs[*tensor.output]);
    } else if (tensor.constant) {
      returned.push_back({"constant", tensor.type, *tensor.constant});
    }
  }
  return returned;
}

}  // namespace tessera
