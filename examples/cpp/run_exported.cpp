// Runs a model that was exported, without PyTorch: this program is linked with Tessera's core
// alone. In Python, such a file is written by compileAndExport("model.poptorch", x) or save().
//
//   run_exported model.poptorch               # random numbers for the inputs
//   run_exported model.poptorch x.raw y.raw   # a file for each input: its numbers, row by row
#include <tessera/files/exported_model.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <random>

namespace {

using Bytes = std::vector<std::byte>;

Bytes read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read '" + path + "'");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

// Normal floats; zeros of other types, which are valid classes and flags.
Bytes random_bytes(const tessera::StepInput& input, size_t size, std::mt19937& random) {
  Bytes bytes(size);
  if (input.host != tessera::DType::f32) return bytes;
  std::normal_distribution<float> normal;
  auto* numbers = reinterpret_cast<float*>(bytes.data());
  std::generate_n(numbers, size / sizeof(float), [&] { return normal(random); });
  return bytes;
}

void print(const tessera::ModelOutput& tensor) {
  std::printf("%s: %s\n", tensor.name.c_str(), tessera::to_string(tensor.type).c_str());
  if (tensor.type.dtype != tessera::DType::f32) return;
  const auto numbers = tensor.as<float>();
  for (size_t i = 0; i < std::min<size_t>(numbers.size(), 10); ++i)
    std::printf("  %.9g", numbers[i]);
  std::printf(numbers.size() > 10 ? "  ...\n" : "\n");
}

int run(const std::vector<std::string>& arguments) {
  tessera::ExportedModel model(arguments[0]);
  const size_t files = arguments.size() - 1;
  if (files != 0 && files != model.inputs().size()) {
    std::fprintf(stderr, "the model takes %zu inputs, not %zu\n", model.inputs().size(), files);
    return 2;
  }
  std::mt19937 random(42);
  std::vector<Bytes> values;
  for (size_t i = 0; i < model.inputs().size(); ++i) {
    const tessera::StepInput& input = model.inputs()[i];
    std::printf("input %s: %s\n", input.name.c_str(), tessera::to_string(input.type).c_str());
    values.push_back(files > 0 ? read_bytes(arguments[1 + i])
                               : random_bytes(input, model.input_bytes(i), random));
  }
  const std::vector<std::span<const std::byte>> inputs(values.begin(), values.end());
  for (const tessera::ModelOutput& tensor : model.run(inputs)) print(tensor);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: run_exported FILE [a file for each input]\n");
    return 2;
  }
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "run_exported: %s\n", error.what());
    return 1;
  }
}
