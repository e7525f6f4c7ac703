#include "tessera/torch/refusals.h"

#include <ATen/ATen.h>

#include "tessera/torch/provenance.h"

namespace tessera {
namespace {

// Masks select a number of elements that depends on their values.
bool has_mask(const AtenCall& call) {
  const c10::IValue* indices = call.find("indices");
  if (!indices || !indices->isList()) return false;
  for (const c10::IValue& item : indices->toListRef()) {
    if (!item.isTensor() || !item.toTensor().defined()) continue;
    const auto type = item.toTensor().scalar_type();
    if (type == at::kBool || type == at::kByte) return true;
  }
  return false;
}

Error error_at(const std::string& asked_by, const Origin& origin, const std::string& sentence) {
  const ErrorContext where(source_place(origin), "{} at {}", asked_by, place(origin));
  return Error(ErrorKind::user, sentence);
}

}  // namespace

bool depends_on_values(const AtenCall& call) {
  switch (call.facts().values) {
    case ValueDependence::for_masks:
      return has_mask(call);
    case ValueDependence::always:
      return true;
    case ValueDependence::as_tagged:
      break;
  }
  return call.op().hasTag(at::Tag::data_dependent_output) ||
         call.op().hasTag(at::Tag::dynamic_output_shape);
}

bool makes_tensor(const AtenCall& call) {
  for (const auto& result : call.schema().returns()) {
    if (result.type()->str().find("Tensor") != std::string::npos) return true;
  }
  return call.schema().returns().empty();
}

Error shape_refusal(const AtenCall& call, const Origin& origin) {
  const std::string_view other = call.facts().refused_as;
  const std::string name = other.empty() ? call.schema().name() : std::string(other);
  return error_at(
      name, origin,
      fmt::format("Operations using {} are unsupported because the output shape is determined "
                  "by the tensor values; {}",
                  name,
                  call.facts().counts_values
                      ? "count a known number of classes instead, with torch.bincount(x, "
                        "minlength=n) or one_hot(x, n).sum(0)"
                      : "keep the whole tensor instead, with torch.where or a product with "
                        "the mask"));
}

Error value_refusal(const std::string& asked_by, const Origin& origin) {
  return error_at(
      asked_by, origin,
      fmt::format("forward looked at the value of a tensor ({}), which is only known when the "
                  "program runs; .item(), bool(), tolist(), numpy() and control flow over "
                  "tensors cannot be part of a static graph: use tensor operators such as "
                  "torch.where, or pass the number as an argument that is not a tensor",
                  asked_by));
}

std::string asked_by(const AtenCall& call) {
  const std::string_view spoken = call.facts().asked_as;
  return spoken.empty() ? call.overload() : std::string(spoken);
}

}  // namespace tessera
