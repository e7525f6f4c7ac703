#include "tessera/torch/static_forms.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "tessera/base/error.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/dispatch.h"
#include "tessera/torch/own_operators.h"

namespace tessera::static_forms {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// x, whose values a program checks when it runs.
at::Tensor required(const at::Tensor& x, double low, double high, const std::string& too_low,
                    const std::string& too_high) {
  return call_own("require", {x, low, high, too_low, too_high})[0];
}

bool is_differentiated(const at::Tensor& x) {
  return at::GradMode::is_enabled() && x.requires_grad() && x.is_floating_point();
}

// At each element the product of all before it along the dimension.
at::Tensor product_before(const at::Tensor& x, int64_t dim) {
  const int64_t size = x.size(dim);
  const at::Tensor ones = at::ones_like(x.narrow(dim, 0, 1));
  if (size == 1) return ones;
  return at::cat({ones, x.narrow(dim, 0, size - 1).cumprod(dim)}, dim);
}

struct Product : torch::autograd::Function<Product> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, int64_t dim) {
    context->save_for_backward({x});
    context->saved_data["dim"] = dim;
    return x.prod(dim);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const at::Tensor x = context->get_saved_variables()[0];
    const int64_t dim = context->saved_data["dim"].toInt();
    if (x.numel() == 0) return {at::zeros_like(x), at::Tensor()};
    const at::Tensor after = product_before(x.flip(dim), dim).flip(dim);
    return {grads[0].unsqueeze(dim) * product_before(x, dim) * after, at::Tensor()};
  }
};

at::Tensor sum_from_the_end(const at::Tensor& x, int64_t dim) {
  return x.flip(dim).cumsum(dim).flip(dim);
}

// A running product is zero from the first zero on. Elements before that zero divide their part
// out; the zero itself stands for one; what comes later changes nothing.
struct RunningProduct : torch::autograd::Function<RunningProduct> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, int64_t dim) {
    const at::Tensor result = x.cumprod(dim);
    context->save_for_backward({x, result});
    context->saved_data["dim"] = dim;
    return result;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor result = context->get_saved_variables()[1];
    const int64_t dim = context->saved_data["dim"].toInt();
    const at::Tensor is_zero = x.eq(0);
    const at::Tensor zeros_so_far = is_zero.to(at::kInt).cumsum(dim);
    const at::Tensor is_first_zero = is_zero.logical_and(zeros_so_far.eq(1));
    const at::Tensor ones = at::ones_like(x);
    const at::Tensor before =
        sum_from_the_end(grads[0] * result, dim) / at::where(is_zero, ones, x);
    const at::Tensor without_zero = at::where(is_first_zero, ones, x).cumprod(dim);
    const at::Tensor at_zero = sum_from_the_end(grads[0] * without_zero, dim);
    const at::Tensor later = at::zeros_like(x);
    return {at::where(zeros_so_far.eq(0), before, at::where(is_first_zero, at_zero, later)),
            at::Tensor()};
  }
};

// Products of the elements of `src` that go to one place of `self`, and of self's own.
struct ProductAtPlaces : torch::autograd::Function<ProductAtPlaces> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& self, int64_t dim,
                            const at::Tensor& index, const at::Tensor& src, bool include_self) {
    context->save_for_backward({self, index, src});
    context->saved_data["dim"] = dim;
    context->saved_data["include_self"] = include_self;
    return self.scatter_reduce(dim, index, src, "prod", include_self);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const at::Tensor self = context->get_saved_variables()[0];
    const at::Tensor index = context->get_saved_variables()[1];
    const at::Tensor src = context->get_saved_variables()[2];
    const int64_t dim = context->saved_data["dim"].toInt();
    const bool include_self = context->saved_data["include_self"].toBool();
    const at::Tensor& grad = grads[0];
    const at::Tensor ones = at::ones_like(self);
    at::Tensor of_self;
    if (include_self) {
      of_self = grad * ones.scatter_reduce(dim, index, src, "prod", /*include_self=*/true);
    } else {
      of_self = grad.scatter(dim, index, 0);
    }
    // The product of the others, without dividing by zero: zeros are counted and left out of it.
    const at::Tensor is_zero = src.eq(0);
    const at::Tensor filled = src.masked_fill(is_zero, 1);
    const at::Tensor zero_count = is_zero.to(self.scalar_type());
    const at::Tensor zeros = at::zeros_like(self).scatter_add(dim, index, zero_count);
    const at::Tensor other_zeros = zeros.gather(dim, index) - zero_count;
    const at::Tensor product = ones.scatter_reduce(dim, index, filled, "prod", true);
    const at::Tensor arriving = include_self ? grad * self : grad;
    const at::Tensor others = (arriving * product).gather(dim, index) / filled;
    return {of_self, at::Tensor(), at::Tensor(), others.masked_fill(other_zeros.gt(0), 0),
            at::Tensor()};
  }
};

// The gradient is shared among all elements equal to the median.
struct Median : torch::autograd::Function<Median> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, bool skip_nan) {
    const at::Tensor result = skip_nan ? x.nanmedian() : x.median();
    context->save_for_backward({x, result});
    return result;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor result = context->get_saved_variables()[1];
    const at::Tensor both_nan = x.isnan().logical_and(result.isnan());
    const at::Tensor share = x.eq(result).logical_or(both_nan).to(x.scalar_type());
    return {grads[0] * share / share.sum(), at::Tensor()};
  }
};

}  // namespace

at::Tensor max(const at::Tensor& self) { return self.amax(); }

at::Tensor min(const at::Tensor& self) { return self.amin(); }

at::Tensor median(const at::Tensor& self) {
  return is_differentiated(self) ? Median::apply(self, false) : self.median();
}

at::Tensor nanmedian(const at::Tensor& self) {
  return is_differentiated(self) ? Median::apply(self, true) : self.nanmedian();
}

at::Tensor prod(const at::Tensor& self, compat::optional<at::ScalarType> dtype) {
  const at::Tensor x = dtype ? self.to(*dtype) : self;
  return is_differentiated(x) ? Product::apply(x.reshape({-1}), 0) : self.prod(dtype);
}

at::Tensor prod_along(const at::Tensor& self, int64_t dim, bool keepdim,
                      compat::optional<at::ScalarType> dtype) {
  const at::Tensor x = dtype ? self.to(*dtype) : self;
  if (!is_differentiated(x)) return self.prod(dim, keepdim, dtype);
  if (x.dim() == 0) return x.clone();
  const int64_t wrapped = at::maybe_wrap_dim(dim, x.dim());
  const at::Tensor result = Product::apply(x, wrapped);
  return keepdim ? result.unsqueeze(wrapped) : result;
}

at::Tensor cumprod(const at::Tensor& self, int64_t dim, compat::optional<at::ScalarType> dtype) {
  const at::Tensor x = dtype ? self.to(*dtype) : self;
  if (!is_differentiated(x)) return self.cumprod(dim, dtype);
  return x.dim() == 0 ? x.clone() : RunningProduct::apply(x, at::maybe_wrap_dim(dim, x.dim()));
}

at::Tensor scatter_reduce(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                          const at::Tensor& src, compat::string_view reduce, bool include_self) {
  const bool differentiated = is_differentiated(self) || is_differentiated(src);
  if (reduce != "prod" || !differentiated || self.dim() == 0) {
    return at::scatter_reduce(self, dim, index, src, reduce, include_self);
  }
  // Of src only as much counts as there are indices.
  at::Tensor used = src;
  for (int64_t d = 0; d < src.dim(); ++d) used = used.narrow(d, 0, index.size(d));
  return ProductAtPlaces::apply(self, at::maybe_wrap_dim(dim, self.dim()), index, used,
                                include_self);
}

at::Tensor index_reduce(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                        const at::Tensor& source, compat::string_view reduce, bool include_self) {
  const bool differentiated = is_differentiated(self) || is_differentiated(source);
  if (reduce != "prod" || !differentiated || self.dim() == 0) {
    return at::index_reduce(self, dim, index, source, reduce, include_self);
  }
  std::vector<int64_t> along(static_cast<size_t>(source.dim()), 1);
  const int64_t wrapped = at::maybe_wrap_dim(dim, self.dim());
  along[static_cast<size_t>(wrapped)] = index.numel();
  const at::Tensor everywhere = index.to(at::kLong).view(along).expand_as(source);
  return ProductAtPlaces::apply(self, wrapped, everywhere, source, include_self);
}

at::Tensor masked_fill(const at::Tensor& self, const at::Tensor& mask, const at::Tensor& value) {
  if (!is_differentiated(value)) return self.masked_fill(mask, value);
  return at::where(mask, value.to(self.scalar_type()), self).contiguous();
}

at::Tensor& masked_fill_(at::Tensor& self, const at::Tensor& mask, const at::Tensor& value) {
  if (!is_differentiated(value)) return self.masked_fill_(mask, value);
  return self.copy_(at::where(mask, value.to(self.scalar_type()), self));
}

at::Tensor masked_scatter(const at::Tensor& self, const at::Tensor& mask,
                          const at::Tensor& source) {
  if (source.numel() == 0) return self.masked_scatter(mask, source);
  const std::vector<at::Tensor> both = at::broadcast_tensors({self, mask});
  // How many elements the mask has covered before: the place in the source.
  const at::Tensor place =
      required(both[1].flatten().to(at::kLong).cumsum(0) - 1, -1,
               static_cast<double>(source.numel() - 1), "",
               "masked_scatter: expected self and source to have same number of elements as the "
               "mask has ones; source is too short");
  const at::Tensor values = source.flatten().index_select(0, place.clamp_min(0));
  return at::where(both[1], values.view(both[1].sizes()), both[0]).contiguous();
}

at::Tensor& masked_scatter_(at::Tensor& self, const at::Tensor& mask, const at::Tensor& source) {
  check(self.is_contiguous(),
        "masked_scatter_: PyTorch changes a tensor that does not lie row by row, here one of shape "
        "{} and strides {}, in the order of its memory; use masked_scatter(), which goes by rows",
        to_string(shape_of(self)), to_string(self.strides().vec()));
  return self.copy_(static_forms::masked_scatter(self, mask, source));
}

at::Tensor one_hot(const at::Tensor& classes, int64_t count) {
  check(
      count > 0,
      "OneHot num classes must be specified and must be constant. Pass num_classes to one_hot: the "
      "largest class is only known when the program runs");
  check(classes.scalar_type() == at::kLong,
        "one_hot is only applicable to index tensor, of type int64; this one is {}",
        c10::toString(classes.scalar_type()));
  const at::Tensor known =
      required(classes, 0, static_cast<double>(count - 1), "Class values must be non-negative.",
               "Class values must be smaller than num_classes.");
  return known.unsqueeze(-1)
      .eq(at::arange(count, classes.options()))
      .to(at::kLong, /*non_blocking=*/false, /*copy=*/false, at::MemoryFormat::Contiguous);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> unique(const at::Tensor& self, bool sorted,
                                                      bool return_inverse, bool return_counts) {
  Recorder* recorder = current_recorder();
  std::optional<at::Tensor> example;
  if (recorder && !recorder->is_constant(self)) example = recorder->example_of(self);
  if (!example) return at::_unique2(self, sorted, return_inverse, return_counts);
  int64_t count = 0;
  {
    const NotRecorded quiet;
    count = std::get<0>(at::_unique2(*example)).numel();
  }
  const std::vector<at::Tensor> results = call_own("unique", {self, count});
  if (count > 0) recorder->keep(results[2].narrow(0, 0, 1));
  const at::Tensor nothing = at::empty({0}, self.options().dtype(at::kLong));
  return {results[0], return_inverse ? results[1] : nothing, return_counts ? results[2] : nothing};
}

bool nested_tensor_from_mask_left_aligned(const at::Tensor&, const at::Tensor&) { return false; }

std::tuple<at::Tensor, at::Tensor> pack_padded_sequence(const at::Tensor& input,
                                                        const at::Tensor& lengths,
                                                        bool batch_first) {
  check(lengths.storage().data() != nullptr,
        "pack_padded_sequence: the lengths are only known when the program runs, but they decide "
        "the shapes of what follows; pass them as numbers, or mask the padding instead");
  const at::Tensor by_time = batch_first ? input.transpose(0, 1) : input;
  at::Tensor batch_sizes;
  {
    const NotRecorded quiet;
    const at::Tensor like = at::zeros({by_time.size(0), by_time.size(1), 1});
    batch_sizes = std::get<1>(at::_pack_padded_sequence(like, lengths, /*batch_first=*/false));
  }
  std::vector<at::Tensor> steps;
  const auto* counts = batch_sizes.data_ptr<int64_t>();
  for (int64_t time = 0; time < batch_sizes.numel(); ++time) {
    steps.push_back(by_time[time].narrow(0, 0, counts[time]));
  }
  return {at::cat(steps), batch_sizes};
}

at::Tensor binary_cross_entropy_with_logits(const at::Tensor& self, const at::Tensor& target,
                                            const compat::optional<at::Tensor>& weight,
                                            const compat::optional<at::Tensor>& pos_weight,
                                            int64_t reduction) {
  compat::optional<at::Tensor> share = pos_weight;
  if (share.has_value() && share->defined() && !share->is_floating_point()) {
    share = (*share - 1).to(self.scalar_type()) + 1;  // PyTorch's difference, which may wrap
  }
  return at::binary_cross_entropy_with_logits(self, target, weight, share, reduction);
}

at::Tensor cross_entropy_loss(const at::Tensor& self, const at::Tensor& target,
                              const compat::optional<at::Tensor>& weight, int64_t reduction,
                              int64_t ignore_index, double label_smoothing) {
  const bool smooth_classes = label_smoothing > 0 && !target.is_floating_point();
  if (!smooth_classes) {
    return at::cross_entropy_loss(self, target, weight, reduction, ignore_index, label_smoothing);
  }
  const int64_t class_dim = self.dim() == 1 ? 0 : 1;
  const int64_t classes = self.size(class_dim);
  const at::Tensor log_probabilities = self.log_softmax(class_dim);
  const at::Tensor target_loss =
      at::nll_loss_nd(log_probabilities, target, weight, reduction, ignore_index);

  const at::Tensor ignored = target.eq(ignore_index);
  at::Tensor over_classes = log_probabilities;
  at::Tensor share = ignored.logical_not().to(self.scalar_type());  // of each target in the mean
  if (weight.has_value() && weight->defined()) {
    std::vector<int64_t> along_classes(static_cast<size_t>(self.dim()), 1);
    along_classes[static_cast<size_t>(class_dim)] = classes;
    over_classes = over_classes * weight->view(along_classes);
    const at::Tensor weights = weight->index_select(0, target.masked_fill(ignored, 0).flatten());
    share = share * weights.view(target.sizes());
  }
  at::Tensor smooth_loss = -over_classes.sum(class_dim);
  smooth_loss = smooth_loss.masked_fill(ignored, 0);
  if (reduction == at::Reduction::Sum) smooth_loss = smooth_loss.sum();
  if (reduction == at::Reduction::Mean) smooth_loss = smooth_loss.sum() / share.sum();
  const double per_class = label_smoothing / static_cast<double>(classes);
  return (1 - label_smoothing) * target_loss + per_class * smooth_loss;
}

at::Tensor fused_moving_avg_obs_fake_quant(const at::Tensor& self, const at::Tensor& observer_on,
                                           const at::Tensor& fake_quant_on, at::Tensor& running_min,
                                           at::Tensor& running_max, at::Tensor& scale,
                                           at::Tensor& zero_point, double averaging,
                                           int64_t quant_min, int64_t quant_max,
                                           int64_t channel_dim, bool per_channel, bool symmetric) {
  if (per_channel && running_min.numel() == 0) {
    const NotRecorded quiet;
    const at::NoGradGuard no_gradients;
    const int64_t channels = self.size(channel_dim);
    running_min.resize_({channels}).fill_(std::numeric_limits<double>::infinity());
    running_max.resize_({channels}).fill_(-std::numeric_limits<double>::infinity());
    scale.resize_({channels}).fill_(1);
    zero_point.resize_({channels}).fill_(0);
  }
  return at::fused_moving_avg_obs_fake_quant(self, observer_on, fake_quant_on, running_min,
                                             running_max, scale, zero_point, averaging, quant_min,
                                             quant_max, channel_dim, per_channel, symmetric);
}

}  // namespace tessera::static_forms
