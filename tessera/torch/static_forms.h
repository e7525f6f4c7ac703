// Operators that PyTorch takes apart by looking at values, in forms that do not look. They compute
// the same and are differentiated by autograd like any other code.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::static_forms {

// PyTorch's own derivatives of max() and min() look at the result; amax and amin share the gradient
// among equal elements in the same way.
at::Tensor max(const at::Tensor& self);
at::Tensor min(const at::Tensor& self);

// PyTorch's derivative of a median asks whether it is NaN.
at::Tensor median(const at::Tensor& self);
at::Tensor nanmedian(const at::Tensor& self);

// PyTorch's derivatives of products count the zeros; here the product of the other elements comes
// from both sides, without a division.
at::Tensor prod(const at::Tensor& self, c10::optional<at::ScalarType> dtype);
at::Tensor prod_along(const at::Tensor& self, int64_t dim, bool keepdim,
                      c10::optional<at::ScalarType> dtype);
at::Tensor cumprod(const at::Tensor& self, int64_t dim, c10::optional<at::ScalarType> dtype);

// PyTorch's derivative by the value selects what the mask covers, a number of elements.
at::Tensor masked_fill(const at::Tensor& self, const at::Tensor& mask, const at::Tensor& value);
at::Tensor& masked_fill_(at::Tensor& self, const at::Tensor& mask, const at::Tensor& value);
at::Tensor masked_scatter(const at::Tensor& self, const at::Tensor& mask, const at::Tensor& source);
at::Tensor& masked_scatter_(at::Tensor& self, const at::Tensor& mask, const at::Tensor& source);

// Needs the number of classes: the largest class is a value.
at::Tensor one_hot(const at::Tensor& classes, int64_t count);

// With label smoothing PyTorch selects the targets that are not ignored; here they weigh nothing.
at::Tensor cross_entropy_loss(const at::Tensor& self, const at::Tensor& target,
                              const c10::optional<at::Tensor>& weight, int64_t reduction,
                              int64_t ignore_index, double label_smoothing);

}  // namespace tessera::static_forms
