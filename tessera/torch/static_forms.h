// Operators that PyTorch takes apart by looking at values, in forms that do not look. They compute
// the same and are differentiated by autograd like any other code.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "tessera/torch/compat.h"

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
at::Tensor prod(const at::Tensor& self, compat::optional<at::ScalarType> dtype);
at::Tensor prod_along(const at::Tensor& self, int64_t dim, bool keepdim,
                      compat::optional<at::ScalarType> dtype);
at::Tensor cumprod(const at::Tensor& self, int64_t dim, compat::optional<at::ScalarType> dtype);

// PyTorch's derivatives of products at places ask whether two zeros met there.
at::Tensor scatter_reduce(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                          const at::Tensor& src, compat::string_view reduce, bool include_self);
at::Tensor index_reduce(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                        const at::Tensor& source, compat::string_view reduce, bool include_self);

// PyTorch's derivative by the value selects what the mask covers, a number of elements.
at::Tensor masked_fill(const at::Tensor& self, const at::Tensor& mask, const at::Tensor& value);
at::Tensor& masked_fill_(at::Tensor& self, const at::Tensor& mask, const at::Tensor& value);
at::Tensor masked_scatter(const at::Tensor& self, const at::Tensor& mask, const at::Tensor& source);
at::Tensor& masked_scatter_(at::Tensor& self, const at::Tensor& mask, const at::Tensor& source);

// Needs the number of classes: the largest class is a value.
at::Tensor one_hot(const at::Tensor& classes, int64_t count);

// How many values there are is a size: it comes from the example batch, where it can, and a program
// that finds another number is an error.
std::tuple<at::Tensor, at::Tensor, at::Tensor> unique(const at::Tensor& self, bool sorted,
                                                      bool return_inverse, bool return_counts);

// Whether a mask's padding comes last is a value. "No" keeps PyTorch's encoder on its ordinary
// path, which computes the same for everything that is not padding.
bool nested_tensor_from_mask_left_aligned(const at::Tensor& self, const at::Tensor& mask);

// The lengths decide shapes, so they must be known when the model is compiled; rows of the batch
// are taken by slices.
std::tuple<at::Tensor, at::Tensor> pack_padded_sequence(const at::Tensor& input,
                                                        const at::Tensor& lengths,
                                                        bool batch_first);

// A weight of whole numbers is made a float where PyTorch makes it one: after a difference.
at::Tensor binary_cross_entropy_with_logits(const at::Tensor& self, const at::Tensor& target,
                                            const compat::optional<at::Tensor>& weight,
                                            const compat::optional<at::Tensor>& pos_weight,
                                            int64_t reduction);

// With label smoothing PyTorch selects the targets that are not ignored; here they weigh nothing.
at::Tensor cross_entropy_loss(const at::Tensor& self, const at::Tensor& target,
                              const compat::optional<at::Tensor>& weight, int64_t reduction,
                              int64_t ignore_index, double label_smoothing);

// In the first step PyTorch's kernel sizes the observer's buffers, one place for each channel; here
// that happens before they become part of a program.
at::Tensor fused_moving_avg_obs_fake_quant(const at::Tensor& self, const at::Tensor& observer_on,
                                           const at::Tensor& fake_quant_on, at::Tensor& running_min,
                                           at::Tensor& running_max, at::Tensor& scale,
                                           at::Tensor& zero_point, double averaging,
                                           int64_t quant_min, int64_t quant_max,
                                           int64_t channel_dim, bool per_channel, bool symmetric);

}  // namespace tessera::static_forms
