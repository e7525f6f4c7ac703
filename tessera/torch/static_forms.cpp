#include "tessera/torch/static_forms.h"

#include <ATen/ATen.h>

#include "tessera/base/error.h"

namespace tessera::static_forms {

at::Tensor max(const at::Tensor& self) { return self.amax(); }

at::Tensor min(const at::Tensor& self) { return self.amin(); }

at::Tensor one_hot(const at::Tensor& classes, int64_t count) {
  check(count > 0,
        "one_hot needs num_classes: the largest class is only known when the program runs");
  return classes.unsqueeze(-1).eq(at::arange(count, classes.options())).to(at::kLong);
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

}  // namespace tessera::static_forms
