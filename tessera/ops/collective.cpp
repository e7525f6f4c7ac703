// What all replicas of a program compute together. Each of them runs the same row at the same
// place; a program that runs alone is its own only replica.
#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/replica_groups.h"
#include "tessera/ops/families.h"
#include "tessera/ops/row_parts.h"
#include "tessera/ops/rows.h"

namespace tessera {
namespace {

using namespace row_parts;

std::vector<TensorType> infer_all_reduce(const OpView& op) {
  check(op.type(0).dtype == DType::f32, ErrorKind::type, "all_reduce adds up f32, not {}",
        to_string(op.type(0)));
  return {op.type(0)};
}

Cost cost_all_reduce(const OpView& op, std::span<const TensorType>) {
  return CollectiveCost{bytes(op.type(0))};
}

ReplicaGroups groups_of(const Attrs& attrs) {
  return {attrs.integer("group_size"), attrs.flag("orthogonal")};
}

// Each group adds up in a row of its own, where the others have zeros.
void sum_within_groups(Communicator& replicas, const ReplicaGroups& groups,
                       std::span<float> values) {
  const auto own = static_cast<size_t>(groups.group_of(replicas.rank(), replicas.size()));
  std::vector<float> rows(values.size() * static_cast<size_t>(groups.count(replicas.size())));
  const auto row = rows.begin() + static_cast<std::ptrdiff_t>(own * values.size());
  std::copy(values.begin(), values.end(), row);
  replicas.all_reduce(rows, rows);
  std::copy_n(row, values.size(), values.begin());
}

void run_all_reduce(const KernelCall& call) {
  rows::map_equal_types<float, float, 1>(call, [](float x) { return x; });
  if (!call.replicas || call.replicas->size() == 1) return;
  const std::span<float> values(call.outputs[0].as<float>(),
                                static_cast<size_t>(call.outputs[0].numel()));
  const ReplicaGroups groups = groups_of(call.attrs);
  if (groups.count(call.replicas->size()) == 1) {
    call.replicas->all_reduce(values, values);
  } else {
    sum_within_groups(*call.replicas, groups, values);
  }
  if (!call.attrs.flag("mean")) return;
  const float share = 1.0F / static_cast<float>(groups.size_of(call.replicas->size()));
  for (float& value : values) value *= share;
}

std::vector<OpDef> make_rows() {
  return {{.name = "all_reduce",
           .operands = "self",
           .results = "out",
           .doc =
               "The sum of self, or its mean, over all replicas or over groups of group_size, in "
               "the order of their ranks.",
           .kind = Kind::collective,
           .attrs = {flag("mean", false), integer("group_size", 0), flag("orthogonal", false)},
           .traits = {.in_place = {{0, 0}}},
           .infer = infer_all_reduce,
           .cost = cost_all_reduce,
           .cpu = run_all_reduce,
           .samples = {Sample{{reals({3, 5})}}, Sample{{reals({})}, {{"mean", true}}}}}};
}

}  // namespace

std::span<const OpDef> families::collective() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
