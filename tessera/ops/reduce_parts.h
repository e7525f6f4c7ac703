// What the rows of folds over dimensions share.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/scratch.h"
#include "tessera/kernels/dispatch.h"
#include "tessera/ops/op_def.h"
#include "tessera/ops/row_parts.h"

namespace tessera::reduce_parts {

// Rows of the family that have a file of their own.
std::vector<OpDef> moment_rows();

// The dimensions to fold, in range; none means all.
ScratchShape folded_dims(const Attrs& attrs, int64_t rank);

std::vector<TensorType> infer_floating(const OpView& op);

struct ReduceRow {
  std::string name, results, doc;
  AttrSchema attrs;
  std::vector<AtenSpelling> aten;
  decltype(OpDef::infer) infer;
  decltype(OpDef::cpu) cpu;
  Types types = Types::all;
  row_parts::Domain domain = {};
};
OpDef reduction(ReduceRow row);

}  // namespace tessera::reduce_parts
