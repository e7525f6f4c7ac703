#include "tessera/torch/static_forms.h"

#include <ATen/ATen.h>

#include <limits>

#include "tessera/base/error.h"
#include "tessera/torch/dispatch.h"

namespace tessera::static_forms {

at::Tensor max(const at::Tensor& self) { return self.amax(); }

at::Tensor min(const at::Tensor& self) { return self.amin(); }

at::Tensor one_hot(const at::Tensor& classes, int64_t count) {
  check(count > 0,
        "one_hot needs num_classes: the largest class is only known when the program runs");
  return classes.unsqueeze(-1).eq(at::arange(count, classes.options())).to(at::kLong);
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

at::Tensor cross_entropy_loss(const at::Tensor& self, const at::Tensor& target,
                              const c10::optional<at::Tensor>& weight, int64_t reduction,
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
