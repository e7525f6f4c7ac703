// What all replicas of a program compute together. Each of them runs the same row at the same
// place; a program that runs alone is its own only replica.
#include <cstring>

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
    check(op.type(i).dtype == DType::f32 || op.type(i).dtype == DType::f16, ErrorKind::type,
          "all_reduce adds up f32 or f16, not {}", to_string(op.type(i)));
    check(op.type(i).dtype == op.type(0).dtype, ErrorKind::type,
          "all_reduce adds up tensors of one type, not {} and {}", to_string(op.type(0)),
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

// Each group adds up in a row of its own, where the others have zeros.
void sum_within_groups(const KernelCall& call, const ReplicaGroups& groups) {
  Communicator& replicas = *call.replicas;
  const size_t size = size_of(call.outputs[0].dtype);
  const auto own = static_cast<size_t>(groups.group_of(replicas.rank(), replicas.size()));
  const auto count = static_cast<size_t>(groups.count(replicas.size()));
  size_t elements = 0;
  for (const TensorView& tensor : call.outputs) elements += static_cast<size_t>(tensor.numel());
  ScratchVector<std::byte> rows(elements * count * size);
  std::byte* const row = rows.data() + own * elements * size;
  const auto for_each_part = [&](const auto& move) {
    std::byte* part = row;
    for (const TensorView& tensor : call.outputs) {
      const size_t bytes = static_cast<size_t>(tensor.numel()) * size;
      if (bytes > 0) move(tensor.data, part, bytes);
      part += bytes;
    }
  };
  for_each_part([](const std::byte* tensor, std::byte* part, size_t bytes) {
    std::memcpy(part, tensor, bytes);
  });
  const Summand all{rows.data(), rows.data(), elements * count};
  replicas.all_reduce(call.collective, {call.outputs[0].dtype, {&all, 1}});
  for_each_part([](std::byte* tensor, const std::byte* part, size_t bytes) {
    std::memcpy(tensor, part, bytes);
  });
}

void sum_of_all(const KernelCall& call) {
  ScratchVector<Summand> summands;
  summands.reserve(call.outputs.size());
  for (const TensorView& tensor : call.outputs) {
    summands.push_back({tensor.data, tensor.data, static_cast<size_t>(tensor.numel())});
  }
  call.replicas->all_reduce(call.collective, {call.outputs[0].dtype, summands});
}

void scale(const KernelCall& call, const TensorView& tensor, float share) {
  if (tensor.dtype == DType::f32) {
    map<float, float>(call.pool, {&tensor, 1}, tensor, [share](float x) { return x * share; });
  } else {
    map<Half, Half>(call.pool, {&tensor, 1}, tensor,
                    [share](Half x) { return to_half(to_float(x) * share); });
  }
}

void copy(const KernelCall& call, size_t i) {
  if (call.outputs[i].data == call.inputs[i].data) return;  // is there already
  const auto operand = call.inputs.subspan(i, 1);
  if (call.outputs[i].dtype == DType::f32) {
    map<float, float>(call.pool, operand, call.outputs[i], [](float x) { return x; });
  } else {
    map<Half, Half>(call.pool, operand, call.outputs[i], [](Half x) { return x; });
  }
}

void run_all_reduce(const KernelCall& call) {
  if (call.collective_has_begun) call.replicas->all_reduce(call.collective, {});
  for (size_t i = 0; i < call.outputs.size(); ++i) copy(call, i);
  if (!call.replicas || call.replicas->size() == 1) return;
  const ReplicaGroups groups{call.attrs.integer("group_size"), call.attrs.flag("orthogonal")};
  if (call.collective_has_begun) {
    // The sums were what has been copied.
  } else if (groups.count(call.replicas->size()) == 1) {
    sum_of_all(call);
  } else {
    sum_within_groups(call, groups);
  }
  if (!call.attrs.flag("mean")) return;
  const float share = 1.0F / static_cast<float>(groups.size_of(call.replicas->size()));
  for (const TensorView& tensor : call.outputs) scale(call, tensor, share);
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
           "in the order of ranks. Halves are rounded after each replica's.",
       .kind = Kind::collective,
       .attrs = {flag("mean", false), integer("group_size", 0), flag("orthogonal", false)},
       .traits = {.in_place = each_in_place(), .rounds_to_halves = true},
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
