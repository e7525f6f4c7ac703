#include "tessera/api/executor/anchors.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/torch/convert.h"

namespace tessera {
namespace {

std::string_view log_name(OutputMode mode) {
  switch (mode) {
    case OutputMode::final_value:
      return "FINAL";
    case OutputMode::every_n:
      return "EVERYN";
    case OutputMode::all:
      return "ALL";
    case OutputMode::sum:
      return "Sum";
  }
  return "";
}

StepAnchor::Source source_of(TensorName::Kind kind) {
  switch (kind) {
    case TensorName::Kind::value:
      return StepAnchor::Source::output;
    case TensorName::Kind::updated:
      return StepAnchor::Source::state;
    case TensorName::Kind::hyperparameter:
      return StepAnchor::Source::hyperparameter;
  }
  return StepAnchor::Source::output;
}

}  // namespace

Shape stacked(Shape shape, int64_t count) {
  if (count == 1) return shape;
  if (shape.empty()) return {count};
  shape[0] *= count;
  return shape;
}

std::vector<StepAnchor> add_anchors(const std::vector<AnchorWish>& wishes, const TensorNames& names,
                                    Graph& graph) {
  std::vector<StepAnchor> anchors;
  for (const AnchorWish& wish : wishes) {
    const ErrorContext where("anchorTensor '{}'", wish.short_name);
    const TensorName& named = names.find(wish.long_name);
    log(LogLevel::debug, "anchored tensor {} {}/{}", wish.long_name, log_name(wish.mode),
        wish.mode == OutputMode::every_n ? wish.period : 1);
    anchors.push_back({wish.short_name, wish.long_name, source_of(named.kind), named.index,
                       wish.mode, wish.period});
    if (named.kind != TensorName::Kind::value) continue;
    anchors.back().index = graph.outputs().size();
    graph.add_output("Anchor___" + wish.short_name, named.value);
  }
  return anchors;
}

Anchors::Anchors(const Executable& executable, RunRequest& request)
    : device_iterations_(executable.signature().device_iterations) {
  for (const StepAnchor& wish : executable.signature().anchors) {
    Anchor& anchor = anchors_.emplace_back();
    anchor.wish = wish;
    if (wish.source == StepAnchor::Source::output) continue;
    const int64_t kept =
        outputs_kept(wish.mode, wish.period, {.device_iterations = device_iterations_});
    anchor.shape = stacked({}, kept);
    if (wish.source == StepAnchor::Source::hyperparameter) continue;
    const TensorType& type = executable.states().at(wish.index).type;
    anchor.type = scalar_type_of(type.dtype);
    anchor.shape = stacked(type.shape, kept);
    anchor.request = request.states.size();
    request.states.push_back({wish.index, {nullptr, wish.mode, wish.period}});
  }
}

void Anchors::before_run(RunRequest& request) {
  for (Anchor& anchor : anchors_) {
    if (anchor.wish.source != StepAnchor::Source::state) continue;
    anchor.next = at::detail::empty_cpu(anchor.shape, anchor.type);
    request.states[anchor.request].output.data = static_cast<std::byte*>(anchor.next.data_ptr());
  }
}

void Anchors::after_run(const std::vector<at::Tensor>& results,
                        const std::vector<double>& numbers) {
  for (Anchor& anchor : anchors_) {
    switch (anchor.wish.source) {
      case StepAnchor::Source::output:
        anchor.value = results[anchor.wish.index];
        break;
      case StepAnchor::Source::state:
        anchor.value = std::move(anchor.next);
        break;
      case StepAnchor::Source::hyperparameter: {
        const bool summed = anchor.wish.mode == OutputMode::sum;
        const double times = summed ? static_cast<double>(device_iterations_) : 1;
        anchor.value = at::full(anchor.shape, numbers.at(anchor.wish.index) * times, anchor.type);
        break;
      }
    }
  }
}

at::Tensor Anchors::value(std::string_view short_name) const {
  const auto at = std::find_if(anchors_.begin(), anchors_.end(), [&](const Anchor& anchor) {
    return anchor.wish.name == short_name;
  });
  check(at != anchors_.end(), ErrorKind::assertion,
        "getAnchoredTensor: no tensor with name '{}' was anchored before the model was compiled; "
        "use Options.anchorTensor()",
        short_name);
  check(at->value.defined(), ErrorKind::assertion,
        "getAnchoredTensor: '{}' has no value before the first call", short_name);
  return at->value;
}

}  // namespace tessera
