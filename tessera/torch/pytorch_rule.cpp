#include "tessera/torch/pytorch_rule.h"

#include <c10/util/Exception.h>

#include "tessera/base/error.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/host_call.h"
#include "tessera/torch/pytorch_words.h"

namespace tessera {

void check_legal(const AtenCall& call, const std::function<void()>& forget_error) {
  try {
    trial_run(call, forget_error);
  } catch (const c10::Error& error) {
    forget_error();
    fail(ErrorKind::user, "{}", error.what_without_backtrace());
  }
}

void check_implemented(const AtenCall& call, const std::function<void()>& forget_error) {
  if (!has_few_elements(call)) return;
  try {
    trial_run(call, forget_error);
  } catch (const c10::Error& error) {
    forget_error();
    const std::string_view what = error.what_without_backtrace();
    // Other words may be about the values, which were made up.
    check(!says_wrong_types(what), "{}", what);
  } catch (const std::exception&) {
    forget_error();
  }
}

std::optional<torch::jit::Stack> ruled_results(const AtenCall& call,
                                               const std::function<void()>& forget_error) {
  try {
    return shapes_only(call);
  } catch (const c10::NotImplementedError&) {
    forget_error();
    return std::nullopt;
  } catch (const std::exception&) {
    forget_error();
  }
  // Rules for tensors without memory are not always the kernel's own.
  check_legal(call, forget_error);
  return std::nullopt;
}

// Results that the call writes into its arguments take the arguments' types. Shapes are a row's
// own: PyTorch's rules leave some, such as that of isin with a number, to their kernels.
bool agree(const AtenCall& call, const torch::jit::Stack& pytorchs,
           const std::vector<TensorType>& rows) {
  // What comes after the first is often saved for the backward pass, in a form of a row's own.
  if (pytorchs.empty() || rows.empty() || returned_argument(call.schema(), 0)) return true;
  if (!pytorchs[0].isTensor() || !pytorchs[0].toTensor().defined()) return true;
  return dtype_of(pytorchs[0].toTensor().scalar_type()) == rows[0].dtype;
}

bool is_all_floats(const AtenCall& call) {
  if (!call.written_arguments().empty()) return false;
  const std::vector<at::Tensor> tensors = call.tensors();
  const auto type = tensors.empty() ? at::kFloat : tensors[0].scalar_type();
  if (type != at::kFloat && !is_short_float(type)) return false;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.scalar_type() != type || tensor.numel() == 0) return false;
  }
  return true;
}

}  // namespace tessera
