// The operator table.
#pragma once

#include <string_view>
#include <vector>

#include "tessera/ops/op_def.h"

namespace tessera {

const std::vector<const OpDef*>& all_ops();  // by family, in the order of their files

const OpDef* find_op(std::string_view name);  // null where there is none
const OpDef& op(std::string_view name);       // InternalError where there is none
inline const OpDef& op(const Node& node) { return op(node.op); }

// The row and spelling for an ATen overload ("add.Tensor"), functional form only.
struct AtenMatch {
  const OpDef* op = nullptr;
  const AtenSpelling* spelling = nullptr;
};
AtenMatch find_aten(std::string_view overload);

// One operand as declared in OpDef::operands.
struct OperandSpec {
  std::string name;
  bool optional = false, list = false;
};
std::vector<OperandSpec> operand_specs(const OpDef& op);

}  // namespace tessera
