// One ATen call as it arrives boxed: its arguments by name, and how a row's spelling turns them
// into operands and attributes.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>
#include <vector>

#include "tessera/ops/registry.h"
#include "tessera/torch/aten_facts.h"

namespace tessera {

class AtenCall {
 public:
  AtenCall(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

  const c10::OperatorHandle& op() const { return op_; }
  const c10::FunctionSchema& schema() const { return op_.schema(); }
  const std::string& overload() const { return overload_; }  // "add_.Tensor", "relu"
  const AtenFacts& facts() const { return *facts_; }
  size_t count() const { return schema().arguments().size(); }
  const c10::IValue& argument(size_t i) const { return arguments_[i]; }
  const c10::IValue* find(std::string_view name) const;  // null where there is none of that name
  // The tensor argument of that name; undefined where it is None or absent.
  at::Tensor tensor(std::string_view name) const;

  // Every tensor among the arguments, lists included; undefined ones left out.
  std::vector<at::Tensor> tensors() const;

  // Arguments that the schema marks as written, in their order.
  std::vector<size_t> written_arguments() const;

 private:
  c10::OperatorHandle op_;
  std::string overload_;
  const AtenFacts* facts_;
  at::ArrayRef<c10::IValue> arguments_;
};

// An operand of a call: a tensor, a number, or nothing where it was left out.
struct CallOperand {
  at::Tensor tensor;
  std::optional<c10::Scalar> scalar;
};

struct MatchedCall {
  const OpDef* op = nullptr;
  std::vector<CallOperand> operands;
  Attrs attrs;  // element types as PyTorch has them
  // Arguments that the call changes and its schema marks; they take the results in order.
  std::vector<size_t> written;
  // (argument name, result): what else it changes, where some version's schema does not say so.
  std::vector<std::pair<std::string, size_t>> hidden_mutations;
};

// The row for a call, functional, in-place or out=; nothing where there is no row.
std::optional<MatchedCall> match(const AtenCall& call);

}  // namespace tessera
