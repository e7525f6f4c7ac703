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

std::vector<StepAnchor> add_anchors(const std::vector<AnchorRequest>& requests,
                                    const TensorNames& names, Graph& graph) {
  std::vector<StepAnchor> anchors;
  for (const AnchorRequest& request : requests) {
    const ErrorContext where("anchorTensor '{}'", request.short_name);
    const TensorName& named = names.find(request.long_name);
    log(LogLevel::debug, "anchored tensor {} {}/{}", request.long_name, log_name(request.mode),
        request.mode == OutputMode::every_n ? request.period : 1);
    anchors.push_back({request.short_name, request.long_name, source_of(named.kind), named.index,
                       request.mode, request.period});
    if (named.kind != TensorName::Kind::value) continue;
    anchors.back().index = graph.outputs().size();
    graph.add_output("Anchor___" + request.short_name, named.value);
  }
  return anchors;
}

Anchors::Anchors(const Executable& executable, RunRequest& request)
    : device_iterations_(executable.signature().device_iterations) {
  RunExtent updates = executable.signature().extent();
  updates.gradient_accumulation = 1;
  for (const StepAnchor& step : executable.signature().anchors) {
    Anchor& anchor = anchors_.emplace_back();
    anchor.step = step;
    if (step.source == StepAnchor::Source::output) continue;
    const int64_t kept = outputs_kept(step.mode, step.period, updates);
    anchor.shape = stacked({}, kept);
    if (step.source == StepAnchor::Source::hyperparameter) continue;
    const TensorType& type = executable.states().at(step.index).type;
    anchor.type = scalar_type_of(type.dtype);
    anchor.shape = stacked(type.shape, kept);
    anchor.request = request.states.size();
    request.states.push_back({step.index, {nullptr, step.mode, step.period}});
  }
}

void Anchors::before_run(RunRequest& request) {
  for (Anchor& anchor : anchors_) {
    if (anchor.step.source != StepAnchor::Source::state) continue;
    anchor.next = at::detail::empty_cpu(anchor.shape, anchor.type);
    request.states[anchor.request].output.data = static_cast<std::byte*>(anchor.next.data_ptr());
  }
}

void Anchors::after_run(const std::vector<at::Tensor>& results,
                        const std::vector<double>& numbers) {
  for (Anchor& anchor : anchors_) {
    switch (anchor.step.source) {
      case StepAnchor::Source::output:
        anchor.value = results[anchor.step.index];
        break;
      case StepAnchor::Source::state:
        anchor.value = std::move(anchor.next);
        break;
      case StepAnchor::Source::hyperparameter: {
        const bool summed = anchor.step.mode == OutputMode::sum;
        const double times = summed ? static_cast<double>(device_iterations_) : 1;
        anchor.value = at::full(anchor.shape, numbers.at(anchor.step.index) * times, anchor.type);
        break;
      }
    }
  }
}

at::Tensor Anchors::value(std::string_view short_name) const {
  const auto at = std::find_if(anchors_.begin(), anchors_.end(), [&](const Anchor& anchor) {
    return anchor.step.name == short_name;
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
