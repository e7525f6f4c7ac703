// Operators that PyTorch takes apart by looking at values, in forms that do not look. They compute
// the same and are differentiated by autograd like any other code.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::static_forms {

// PyTorch's own derivatives of max() and min() look at the result; amax and amin share the gradient
// among equal elements in the same way.
at::Tensor max(const at::Tensor& self);
at::Tensor min(const at::Tensor& self);

// Needs the number of classes: the largest class is a value.
at::Tensor one_hot(const at::Tensor& classes, int64_t count);

// With label smoothing PyTorch selects the targets that are not ignored; here they weigh nothing.
at::Tensor cross_entropy_loss(const at::Tensor& self, const at::Tensor& target,
                              const c10::optional<at::Tensor>& weight, int64_t reduction,
                              int64_t ignore_index, double label_smoothing);

}  // namespace tessera::static_forms
