#include "tessera/api/executor/input_stage.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>

#include <atomic>

#include "tessera/api/executor/input_check.h"
#include "tessera/base/log.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/narrowing.h"
#include "tessera/torch/tensor_memory.h"

namespace tessera {
namespace {

// Its elements lie one after the other, as they are.
bool is_dense(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.is_cpu() && tensor.is_contiguous() &&
         !tensor.is_neg() && has_memory(tensor);
}

// Of a dense tensor of int64.
void check_all_fit(const at::Tensor& tensor, const std::string& name) {
  const auto* values = tensor.data_ptr<int64_t>();
  const int64_t count = tensor.numel();
  uint64_t beyond = 0;
  for (int64_t i = 0; i < count; ++i) beyond |= beyond_int32(values[i]);
  if (beyond == 0) return;
  const std::string what = fmt::format("input '{}'", name);
  for (int64_t i = 0; i < count; ++i) check_fits(values[i], what);
}

const std::byte* data_of(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.data_ptr());
}

}  // namespace

void warn_of_other_type(const std::string& what, at::ScalarType type) {
  static std::atomic<bool> told_of_float64;
  static std::atomic<bool> told_of_bfloat16;
  if (type == at::kLong) {
    log(LogLevel::debug,
        "{} is int64, which a program does not have: int64 values are converted to int32", what);
  }
  if (type == at::kDouble && !told_of_float64.exchange(true)) {
    log(LogLevel::warn,
        "{} is float64, which a program does not have: float64 values are converted to float32",
        what);
  }
  if (type == at::kBFloat16 && !told_of_bfloat16.exchange(true)) {
    log(LogLevel::warn,
        "{} is bfloat16, which a program does not have: bfloat16 values are converted to float32, "
        "and results are float32",
        what);
  }
}

const std::byte* InputStage::read(const at::Tensor& tensor, const std::string& name,
                                  InputWarnings& told) {
  if (tensor.requires_grad() && !told.detached) {
    told.detached = true;
    log(LogLevel::warn,
        "input '{}' has requires_grad=True; it is detached, because a program gives no gradients "
        "with respect to its inputs",
        name);
  }
  if (is_dense(tensor)) {
    const at::ScalarType type = tensor.scalar_type();
    if (type == at::kLong) {
      check_all_fit(tensor, name);
      return convert<int64_t, int32_t>(tensor);
    }
    if (type == at::kDouble) return convert<double, float>(tensor);
    if (const DType dtype = dtype_of(type); narrowed(dtype) == dtype) return data_of(tensor);
  }
  check_readable(name, tensor);
  if (!tensor.is_contiguous() && !told.contiguous) {
    told.contiguous = true;
    log(LogLevel::warn,
        "input '{}' is not contiguous and is copied in every call; make it contiguous() first",
        name);
  }
  kept_ = narrowed_values(tensor, fmt::format("input '{}'", name));
  return data_of(kept_);
}

template <typename From, typename To>
const std::byte* InputStage::convert(const at::Tensor& tensor) {
  constexpr at::ScalarType type = c10::CppTypeToScalarType<To>::value;
  if (!converted_.defined() || converted_.scalar_type() != type ||
      converted_.numel() != tensor.numel()) {
    converted_ = at::detail::empty_cpu({tensor.numel()}, type);
  }
  const auto* from = tensor.data_ptr<From>();
  auto* to = converted_.data_ptr<To>();
  const int64_t count = tensor.numel();
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);
  return data_of(converted_);
}

}  // namespace tessera
