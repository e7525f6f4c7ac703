// What goes into a compiled step and what comes out of it, for callers who know neither the model
// nor PyTorch: with an Executable's graph this is all that is needed to run it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/replica_groups.h"
#include "tessera/base/shape.h"
#include "tessera/ir/attributes.h"
#include "tessera/ir/graph.h"
#include "tessera/runtime/output_mode.h"

namespace tessera {

class BlobTable;  // ir/text.h

struct StepInput {
  std::string name;
  TensorType type;          // of one micro-batch, as the program reads it
  DType host = DType::f32;  // what callers give; the program reads narrowed(host)

  bool operator==(const StepInput&) const = default;
};

struct StepOutput {
  std::string name;
  TensorType type;  // of one micro-batch; callers get it as it is
  OutputMode mode = OutputMode::all;
  int64_t period = 1;  // of OutputMode::every_n

  bool operator==(const StepOutput&) const = default;
};

// A tensor that forward returned: an output of the program, or a constant that needs none.
struct ReturnedTensor {
  std::optional<size_t> output = {};
  TensorType type = {};  // of a constant
  Blob constant = {};    // its elements; null for a type that only PyTorch has
  bool is_new = false;   // every call gets one of its own, else all get the user's own tensor

  bool operator==(const ReturnedTensor& other) const;
};

// An input that forward changes in place: the output's values are written back to it.
struct WrittenBack {
  size_t input = 0, output = 0;

  bool operator==(const WrittenBack&) const = default;
};

// A tensor inside the program that the user asked for by name.
struct StepAnchor {
  enum class Source {
    output,         // of the program
    state,          // as it is after an update
    hyperparameter  // one of the optimiser's numbers, by its order among their names
  };
  std::string name, tensor;  // the user's name for it, the program's
  Source source = Source::output;
  size_t index = 0;
  OutputMode mode = OutputMode::all;
  int64_t period = 1;

  bool operator==(const StepAnchor&) const = default;
};

// A state of which not all replicas have the same value. Outside of the program it has a dimension
// more, the first: a value for each group of replicas.
struct GroupedState {
  size_t state = 0;
  ReplicaGroups groups = {};
  bool of_every_replica = false;  // it is read as one value for each replica instead

  bool operator==(const GroupedState&) const = default;
};

struct StepSignature {
  int64_t gradient_accumulation = 1;         // micro-batches per update; part of the program
  int64_t device_iterations = 1;             // of a run that does not say otherwise
  int64_t replicas = 1;                      // part of the program: updates go by it
  int64_t instances = 1;                     // that have so many replicas each; likewise
  ReplicaGroups input_groups = {.size = 1};  // the replicas of a group read the same inputs
  std::vector<StepInput> inputs;             // the graph's data inputs, in order
  std::vector<StepOutput> outputs;           // the graph's outputs, in order
  std::vector<ReturnedTensor> returned;
  // How forward nested what it returned, in the words of the front end: `(<tensor>, [<tensor>,
  // 3])`. Its tensors are `returned`, in order. Empty where nobody said.
  std::string structure;
  std::vector<WrittenBack> written_back;
  std::vector<StepAnchor> anchors;
  std::vector<GroupedState> grouped_states;

  bool operator==(const StepSignature&) const = default;

  const GroupedState* grouped(size_t state) const;  // null where all replicas have the same value
  RunExtent extent() const { return {device_iterations, gradient_accumulation, replicas}; }
  // How many micro-batches the inputs of a run hold, and which of them a micro-batch reads.
  int64_t micro_batches_of_inputs() const {
    return device_iterations * gradient_accumulation * input_groups.count(replicas);
  }
  int64_t input_number(const MicroBatch& at) const {
    return (at.iteration * gradient_accumulation + at.step) * input_groups.count(replicas) +
           input_groups.group_of(at.replica, replicas);
  }
};

// Of a graph of which nothing else is known: all of its outputs are returned, whole.
StepSignature signature_of(const Graph& graph, int64_t gradient_accumulation = 1);

// Error where it is not one of that graph.
void check_fits(const StepSignature& signature, const Graph& graph);

// print() then parse_signature() gives the same signature. Error, with the line, for a text that is
// none; whether it fits a graph is another question.
// Constants are in the text, or beside it where a table of blobs is given (ir/text.h).
std::string print(const StepSignature& signature, BlobTable* blobs = nullptr);
StepSignature parse_signature(std::string_view text, std::span<const Blob> blobs = {});

}  // namespace tessera
