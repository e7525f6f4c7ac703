// Runs what was captured of a call, and says which samples of the operator table cannot be
// compared.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tessera/runtime/compile.h"
#include "tessera/runtime/session.h"
#include "tessera/torch/capture.h"
#include "tests/torch_parity/table_call.h"

namespace tessera {

inline std::vector<at::Tensor> run(Capture captured) {
  const auto executable = compile(std::move(captured.graph));
  Session session(executable, 2);
  for (size_t i = 0; i < captured.states.size(); ++i) {
    const auto type = scalar_type_of(executable->states()[i].type.dtype);
    const at::Tensor value = captured.states[i].host.detach().to(type).contiguous();
    session.write_state(i, {static_cast<std::byte*>(value.data_ptr()), value.nbytes()});
  }
  RunRequest request;
  std::vector<at::Tensor> results;
  for (const auto& output : executable->outputs()) {
    results.push_back(at::zeros(output.type.shape, scalar_type_of(output.type.dtype)));
    request.outputs.push_back(
        {static_cast<std::byte*>(results.back().data_ptr()), OutputMode::final_value, 1});
  }
  session.run(request);
  return results;
}

inline std::vector<at::Tensor> in_double(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> wide;
  for (const at::Tensor& tensor : tensors) {
    wide.push_back(tensor.is_floating_point()
                       ? tensor.detach().to(at::kDouble).requires_grad_(tensor.requires_grad())
                       : tensor);
  }
  return wide;
}

using Names = std::set<std::string>;

// PyTorch's own derivatives look at values here, which no static program can.
inline bool has_no_derivative(const AtenSpelling& spelling, const Sample& sample) {
  const Attr* reduce = sample.attrs.find("reduce");
  return spelling.overload == "index_fill.int_Tensor" ||
         (reduce && std::get<std::string>(*reduce) == "prod");
}

// Which of equal elements comes first is open.
inline const Names ties_have_no_order = {"topk", "kthvalue", "median", "nanmedian", "mode", "sort"};

// Bookkeeping for the gradient: PyTorch leaves it out, or unset, where it has a faster way.
inline const Names only_first_result_matters = {"_embedding_bag", "_embedding_bag_forward_only"};

// Not comparable where values are odd: conversions to integers of what does not fit, poles that
// PyTorch's rounding misses, and sums and products that overflow on the way in one order and not in
// another.
inline const Names odd_values_undefined = {"cast",
                                           "fake_quantize",
                                           "fake_quantize_tensor",
                                           "fake_quantize_channel",
                                           "polygamma",
                                           "i0",
                                           "i1",
                                           "mode",
                                           "var_mean",
                                           "std_mean",
                                           "layer_norm",
                                           "norm",
                                           "addmm",
                                           "addbmm",
                                           "cdist",
                                           "cdist_backward",
                                           "glu_backward",
                                           "multi_margin_loss_backward",
                                           "upsample_trilinear3d",
                                           "upsample_bicubic2d"};

// Leaves that require a gradient, for as many operands as PyTorch differentiates.
inline std::vector<at::Tensor> leaves_of(const Call& call, bool differentiate, Layout layout) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& tensor : tensors_of(call)) {
    // Running statistics and the like change in place: each side has its own.
    at::Tensor leaf = laid_out(tensor.clone(), layout, leaves.empty());
    if (differentiate && leaf.is_floating_point()) leaf.requires_grad_();
    leaves.push_back(leaf);
  }
  return leaves;
}

}  // namespace tessera
