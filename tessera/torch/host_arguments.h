// The arguments of an ATen call as text, in the order of its schema, so that a node can hold them:
// "$0, none, 3, 0.5, [1, 2], true, 'floor', $1:i64". A tensor is its operand's number, with
// PyTorch's element type where that is wider than the graph's. A generator is only named: numbers
// are drawn anew in every step.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/torch/aten_call.h"

namespace tessera {

struct HostOperand {
  size_t number = 0;
  std::optional<DType> dtype;  // what PyTorch's kernel gets; empty: as it is in the graph
};

// One argument: a constant, the generator, or tensors.
struct HostArgument {
  enum class Kind { constant, generator, tensor, tensors, optional_tensors };
  Kind kind = Kind::constant;
  c10::IValue constant;
  std::vector<std::optional<HostOperand>> tensors;  // empty entries: None in a list
};

// Fills `operands` with the call's tensors in the order of their numbers.
std::string print_host_arguments(const AtenCall& call, std::vector<at::Tensor>& operands);

// Error where the text does not fit the schema.
std::vector<HostArgument> parse_host_arguments(std::string_view text,
                                               const c10::FunctionSchema& schema);

}  // namespace tessera
