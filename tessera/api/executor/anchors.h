// Tensors inside a program that the user wants to see: Options::anchorTensor() names them before
// the model is compiled, getAnchoredTensor() gives the values of the last call.
//
// An anchored value is an output of the graph, so that no pass can fuse it away. What exists only
// after a weight update (`UpdatedVar___...`) is read from its state, and the optimiser's numbers
// from the optimiser.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/api/executor/tensor_names.h"
#include "tessera/runtime/executable.h"
#include "tessera/runtime/run_request.h"

namespace tessera {

struct AnchorRequest {
  std::string short_name, long_name;
  OutputMode mode = OutputMode::all;
  int64_t period = 1;
};

class Anchors {
 public:
  Anchors() = default;
  // Adds the states that are wanted to all later requests.
  Anchors(const Executable& executable, RunRequest& request);

  bool empty() const { return anchors_.empty(); }

  // Around each run. `results` are the values of the executable's outputs.
  void before_run(RunRequest& request);
  void after_run(const std::vector<at::Tensor>& results, const std::vector<double>& numbers);

  // The value of the last call. Error where there is none.
  at::Tensor value(std::string_view short_name) const;

 private:
  struct Anchor {
    StepAnchor step;
    // For what is no output: its type and shape with all values kept, and the place of a state in
    // the request.
    at::ScalarType type = at::kFloat;
    std::vector<int64_t> shape = {};
    size_t request = 0;
    at::Tensor next = {}, value = {};
  };

  std::vector<Anchor> anchors_;
  int64_t device_iterations_ = 1;
};

// Makes the tensors that are wanted outputs at the end of the graph, where they are values of it.
// Error for a name that the program does not have.
std::vector<StepAnchor> add_anchors(const std::vector<AnchorRequest>& requests,
                                    const TensorNames& names, Graph& graph);

// How many micro-batches' values are in dimension 0.
Shape stacked(Shape shape, int64_t count);

}  // namespace tessera
