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

}  // namespace

Shape stacked(Shape shape, int64_t count) {
  if (count == 1) return shape;
  if (shape.empty()) return {count};
  shape[0] *= count;
  return shape;
}

Anchors::Anchors(const std::vector<AnchorWish>& wishes, const TensorNames& names, Graph& graph) {
  for (const AnchorWish& wish : wishes) {
    const ErrorContext where("anchorTensor '{}'", wish.short_name);
    const TensorName& named = names.find(wish.long_name);
    log(LogLevel::debug, "anchored tensor {} {}/{}", wish.long_name, log_name(wish.mode),
        wish.mode == OutputMode::every_n ? wish.period : 1);
    Anchor& anchor = anchors_.emplace_back();
    anchor.wish = wish;
    anchor.kind = named.kind;
    anchor.index = named.index;
    if (named.kind != TensorName::Kind::value) continue;
    anchor.index = graph.outputs().size();
    graph.add_output("Anchor___" + wish.short_name, named.value);
  }
}

const AnchorWish* Anchors::wish_for_output(size_t output) const {
  for (const Anchor& anchor : anchors_) {
    if (anchor.kind == TensorName::Kind::value && anchor.index == output) return &anchor.wish;
  }
  return nullptr;
}

void Anchors::prepare(const Executable& executable, RunRequest& request) {
  for (Anchor& anchor : anchors_) {
    if (anchor.kind != TensorName::Kind::updated) continue;
    const TensorType& type = executable.states().at(anchor.index).type;
    const int64_t kept =
        outputs_kept(anchor.wish.mode, anchor.wish.period, request.device_iterations, 1);
    anchor.type = scalar_type_of(type.dtype);
    anchor.shape = stacked(type.shape, kept);
    anchor.request = request.states.size();
    request.states.push_back({anchor.index, {nullptr, anchor.wish.mode, anchor.wish.period}});
  }
}

void Anchors::before_run(RunRequest& request) {
  for (Anchor& anchor : anchors_) {
    if (anchor.kind != TensorName::Kind::updated) continue;
    anchor.next = at::detail::empty_cpu(anchor.shape, anchor.type);
    request.states[anchor.request].output.data = static_cast<std::byte*>(anchor.next.data_ptr());
  }
}

void Anchors::after_run(const std::vector<at::Tensor>& results, const RunRequest& request,
                        const std::vector<double>& numbers) {
  for (Anchor& anchor : anchors_) {
    switch (anchor.kind) {
      case TensorName::Kind::value:
        anchor.value = results[anchor.index];
        break;
      case TensorName::Kind::updated:
        anchor.value = std::move(anchor.next);
        break;
      case TensorName::Kind::hyperparameter: {
        const auto& [mode, period] = std::pair(anchor.wish.mode, anchor.wish.period);
        const int64_t kept = outputs_kept(mode, period, request.device_iterations, 1);
        const double times =
            mode == OutputMode::sum ? static_cast<double>(request.device_iterations) : 1;
        anchor.value = at::full(stacked({}, kept), numbers.at(anchor.index) * times, at::kFloat);
        break;
      }
    }
  }
}

at::Tensor Anchors::value(std::string_view short_name) const {
  const auto at = std::find_if(anchors_.begin(), anchors_.end(), [&](const Anchor& anchor) {
    return anchor.wish.short_name == short_name;
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
