// A model from a file, ready to run: for programs that have neither PyTorch nor Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/files/executable_file.h"
#include "tessera/runtime/session.h"

namespace tessera {

// A dense tensor in memory of its own.
struct ModelOutput {
  std::string name;
  TensorType type;
  std::vector<std::byte> bytes;

  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

class ExportedModel {
 public:
  // Loads the program and its values. Error where the file is none, is damaged, has no values for
  // the model's states, or calls PyTorch. 0 threads: as many as there are processors for them.
  explicit ExportedModel(const std::string& path, int threads = 0);

  const ExecutableFile& file() const { return file_; }
  Session& session() { return session_; }

  // What a call takes: all its micro-batches, one after the other in dimension 0, in the types that
  // callers of the model gave.
  const std::vector<StepInput>& inputs() const { return inputs_; }
  size_t input_bytes(size_t index) const;

  // One call: what forward returned, in its order. Inputs are dense and of input_bytes(). Error
  // where they are not, or where a number does not fit the program's 32 bits.
  std::vector<ModelOutput> run(std::span<const std::span<const std::byte>> inputs);

 private:
  const std::byte* brought_in(size_t index, std::span<const std::byte> given);

  ExecutableFile file_;
  Session session_;
  std::vector<StepInput> inputs_;
  std::vector<std::vector<std::byte>> narrowed_;  // inputs that callers give in 64 bits
};

}  // namespace tessera
