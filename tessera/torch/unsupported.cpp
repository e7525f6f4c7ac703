#include "tessera/torch/unsupported.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>

#include "tessera/base/error.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/host_call.h"

namespace tessera {
namespace {

// What is in the way, in words; empty where nothing is.
std::string obstacle(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  if (tensor.layout() != at::kStrided) {
    std::ostringstream layout;
    layout << tensor.layout();
    return fmt::format("a tensor with layout {}", layout.str());
  }
  if (!has_dtype(tensor.scalar_type())) {
    return fmt::format("a tensor of type {}", c10::toString(tensor.scalar_type()));
  }
  return {};
}

std::string requested_type(const AtenCall& call) {
  const c10::IValue* dtype = call.find("dtype");
  if (!dtype || !dtype->isInt() || has_dtype(dtype->toScalarType())) return {};
  return fmt::format("a tensor of type {}", c10::toString(dtype->toScalarType()));
}

std::vector<at::Tensor> tensors_in(const torch::jit::Stack& values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    if (value.isTensor()) tensors.push_back(value.toTensor());
    if (!value.isTensorList()) continue;
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
  }
  return tensors;
}

// Why no program can have the call; empty where it could.
std::string reason_of(const AtenCall& call, const torch::jit::Stack& results) {
  for (const at::Tensor& tensor : call.tensors()) {
    if (const std::string found = obstacle(tensor); !found.empty()) return "takes " + found;
  }
  for (const at::Tensor& tensor : tensors_in(results)) {
    if (const std::string found = obstacle(tensor); !found.empty()) return "gives " + found;
  }
  const std::string wanted = requested_type(call);
  return wanted.empty() ? wanted : "gives " + wanted;
}

}  // namespace

bool fits_in_graph(const at::Tensor& tensor) { return obstacle(tensor).empty(); }

bool Unsupported::is_stand_in(const at::Tensor& tensor) const {
  return tensor.defined() && tensor.has_storage() &&
         stand_ins_.contains(tensor.storage().unsafeGetStorageImpl());
}

bool Unsupported::concerns(const AtenCall& call) const {
  for (const at::Tensor& tensor : call.tensors()) {
    if (is_stand_in(tensor) || !fits_in_graph(tensor)) return true;
  }
  return !requested_type(call).empty();
}

void Unsupported::note(const AtenCall& call, const Origin& origin,
                       const torch::jit::Stack& results) {
  const std::string name = c10::toString(call.op().operator_name());
  const bool known = std::any_of(found_.begin(), found_.end(),
                                 [&](const Found& found) { return found.name == name; });
  const std::string reason = reason_of(call, results);
  if (!known && !reason.empty()) found_.push_back({name, place(origin), reason});
}

void Unsupported::record(const AtenCall& call, const Origin& origin,
                         const torch::jit::Stack& results, FakeStorages& fakes,
                         torch::jit::Stack& stack) {
  note(call, origin, results);
  const auto stand_in = [&](const at::Tensor& result) {
    if (!result.defined()) return result;
    const at::Tensor made = fakes.make(dense(result.sizes().vec()), result.scalar_type());
    stand_ins_.emplace(made.storage().unsafeGetStorageImpl(), made.storage());
    return made;
  };
  std::vector<c10::IValue> returned;
  for (size_t i = 0; i < results.size(); ++i) {
    if (const auto argument = returned_argument(call.schema(), i)) {
      returned.push_back(call.argument(*argument));
    } else if (results[i].isTensor()) {
      returned.push_back(stand_in(results[i].toTensor()));
    } else if (results[i].isTensorList()) {
      std::vector<at::Tensor> list;
      for (const at::Tensor& tensor : results[i].toTensorVector()) list.push_back(stand_in(tensor));
      returned.push_back(list);
    } else {
      returned.push_back(results[i]);
    }
  }
  torch::jit::drop(stack, call.count());
  for (c10::IValue& value : returned) stack.push_back(std::move(value));
}

void Unsupported::give_up(const AtenCall& call, const Origin& origin) {
  note(call, origin, {});
  check_none();
  throw Error(ErrorKind::user,
              fmt::format("{}: {} cannot be part of a program", place(origin),
                          c10::toString(call.op().operator_name())),
              source_place(origin));
}

void Unsupported::check_none() const {
  if (found_.empty()) return;
  std::string list;
  for (const auto& [name, where, reason] : found_) {
    list += fmt::format("{}{} ({}, which {})", list.empty() ? "" : ", ", name, where, reason);
  }
  fail(ErrorKind::user,
       "forward uses operators that are not supported in a program: {}; compute with dense tensors "
       "of floating-point, integer or bool types instead",
       list);
}

}  // namespace tessera
