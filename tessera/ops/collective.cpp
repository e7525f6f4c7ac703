// What all replicas of a program compute together. Each of them runs the same row at the same
// place; a program that runs alone is its own only replica.
#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/replica_groups.h"
#include "tessera/base/scratch.h"
#include "tessera/kernels/elementwise.h"
#include "tessera/ops/families.h"
#include "tessera/ops/row_parts.h"
#include "tessera/ops/rows.h"

namespace tessera {
namespace {

using namespace row_parts;

std::vector<TensorType> infer_all_reduce(const OpView& op) {
  std::vector<TensorType> results;
  for (size_t i = 0; i < op.count(); ++i) {
    check(op.type(i).dtype == DType::f32, ErrorKind::type, "all_reduce adds up f32, not {}",
          to_string(op.type(i)));
    results.push_back(op.type(i));
  }
  return results;
}

Cost cost_all_reduce(const OpView&, std::span<const TensorType> results) {
  CollectiveCost cost{};
  for (const TensorType& type : results) cost.bytes_moved += bytes(type);
  return cost;
}

ReplicaGroups groups_of(const Attrs& attrs) {
  return {attrs.integer("group_size"), attrs.flag("orthogonal")};
}

// Each group adds up in a row of its own, where the others have zeros.
void sum_within_groups(Communicator& replicas, const ReplicaGroups& groups,
                       std::span<float> values) {
  const auto own = static_cast<size_t>(groups.group_of(replicas.rank(), replicas.size()));
  ScratchVector<float> rows(values.size() * static_cast<size_t>(groups.count(replicas.size())));
  const auto row = rows.begin() + static_cast<std::ptrdiff_t>(own * values.size());
  std::copy(values.begin(), values.end(), row);
  replicas.all_reduce(rows, rows);
  std::copy_n(row, values.size(), values.begin());
}

void sum(const KernelCall& call, std::span<float> values) {
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

std::span<float> elements(const TensorView& tensor) {
  return {tensor.as<float>(), static_cast<size_t>(tensor.numel())};
}

// Waiting for the others costs more than a copy does: small tensors go in one piece.
void sum_together(const KernelCall& call) {
  size_t count = 0;
  for (const TensorView& tensor : call.outputs) count += elements(tensor).size();
  ScratchVector<float> all;
  all.reserve(count);
  for (const TensorView& tensor : call.outputs) {
    all.insert(all.end(), elements(tensor).begin(), elements(tensor).end());
  }
  sum(call, all);
  auto from = all.begin();
  for (const TensorView& tensor : call.outputs) {
    const std::span<float> to = elements(tensor);
    std::copy_n(from, to.size(), to.begin());
    from += static_cast<std::ptrdiff_t>(to.size());
  }
}

void run_all_reduce(const KernelCall& call) {
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (call.outputs[i].data == call.inputs[i].data) continue;  // is there already
    map<float, float>(call.pool, call.inputs.subspan(i, 1), call.outputs[i],
                      [](float x) { return x; });
  }
  if (!call.replicas || call.replicas->size() == 1) return;
  if (call.outputs.size() == 1) return sum(call, elements(call.outputs[0]));
  sum_together(call);
}

// Each tensor becomes its sum; of very many, the last ones are copied.
std::vector<std::pair<size_t, size_t>> each_in_place() {
  constexpr size_t many = 256;
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t i = 0; i < many; ++i) pairs.emplace_back(i, i);
  return pairs;
}

std::vector<OpDef> make_rows() {
  return {
      {.name = "all_reduce",
       .operands = "selves*",
       .results = "out*",
       .doc =
           "The sums of tensors, or their means, over all replicas or over groups of group_size, "
           "in the order of ranks.",
       .kind = Kind::collective,
       .attrs = {flag("mean", false), integer("group_size", 0), flag("orthogonal", false)},
       .traits = {.in_place = each_in_place()},
       .infer = infer_all_reduce,
       .cost = cost_all_reduce,
       .cpu = run_all_reduce,
       .samples = {Sample{{reals({3, 5})}}, Sample{{reals({}), reals({4})}, {{"mean", true}}}}}};
}

}  // namespace

std::span<const OpDef> families::collective() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
