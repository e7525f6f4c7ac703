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
#include "tessera/runtime/session.h"

namespace tessera {

struct AnchorWish {
  std::string short_name, long_name;
  OutputMode mode = OutputMode::all;
  int64_t period = 1;
};

class Anchors {
 public:
  Anchors() = default;
  // Adds outputs to the end of the graph. Error for a name that the program does not have.
  Anchors(const std::vector<AnchorWish>& wishes, const TensorNames& names, Graph& graph);

  bool empty() const { return anchors_.empty(); }

  // How an output of the executable is kept; null for one that is no anchor.
  const AnchorWish* wish_for_output(size_t output) const;

  // Adds the states that are wanted to all later requests.
  void prepare(const Executable& executable, RunRequest& request);
  // Around each run. `results` are the values of the executable's outputs.
  void before_run(RunRequest& request);
  void after_run(const std::vector<at::Tensor>& results, const RunRequest& request,
                 const std::vector<double>& numbers);

  // The value of the last call. Error where there is none.
  at::Tensor value(std::string_view short_name) const;

 private:
  struct Anchor {
    AnchorWish wish;
    TensorName::Kind kind = TensorName::Kind::value;
    size_t index = 0;  // of the output, the state or the number
    // For a state: its place in the request, its type and shape with all values kept.
    size_t request = 0;
    at::ScalarType type = at::kFloat;
    std::vector<int64_t> shape = {};
    at::Tensor next = {}, value = {};
  };

  std::vector<Anchor> anchors_;
};

// How many micro-batches' values are in dimension 0.
Shape stacked(Shape shape, int64_t count);

}  // namespace tessera
