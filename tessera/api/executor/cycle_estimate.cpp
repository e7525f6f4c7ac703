#include "tessera/api/executor/cycle_estimate.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "tessera/ops/registry.h"

namespace tessera {
namespace {

constexpr double tiles = 1472;
constexpr double exchange_bytes = 4;       // a tile receives per cycle
constexpr double memory_bytes = 8;         // a tile loads or stores per cycle
constexpr double start_cycles = 126 + 24;  // synchronising the tiles, starting the workers

// The cycles of one tile that has an even share of the work.
struct TileCycles {
  double operator()(const ContractionCost& c) const { return products(c.multiply_adds, c.type); }
  double operator()(const RecurrentCost& c) const { return products(c.multiply_adds, c.type); }
  double operator()(const ReductionCost& c) const {
    return share(static_cast<double>(c.elements + c.results), floats_at_once);
  }
  double operator()(const ElementwiseCost& c) const {
    const double per_element = std::max(1.0, c.flops_per_element) + 1;  // and its load and store
    return share(static_cast<double>(c.elements) * per_element, floats_at_once);
  }
  double operator()(const GatherCost& c) const { return moved(c.bytes_moved); }
  double operator()(const CopyCost& c) const { return moved(c.bytes_moved); }
  double operator()(const CollectiveCost& c) const { return moved(c.bytes_moved); }

 private:
  static constexpr double floats_at_once = memory_bytes / sizeof(float);

  static double products(int64_t multiply_adds, DType type) {
    const double flops_per_cycle = type == DType::f32 ? 32 : 64;
    return share(2 * static_cast<double>(multiply_adds), flops_per_cycle);
  }
  static double share(double work, double per_cycle) { return std::ceil(work / tiles / per_cycle); }
  static double moved(int64_t bytes) { return share(static_cast<double>(bytes), memory_bytes); }
};

double cycles_of(const Graph& graph, const Node& node) {
  const OpDef& row = op(node);
  if (!row.cost || row.kind == Kind::view || row.kind == Kind::source) return 0;
  std::vector<std::optional<TensorType>> operands;
  std::vector<TensorType> results;
  double exchanged = 0;
  for (const ValueId operand : node.operands) {
    operands.push_back(operand.valid() ? std::optional(graph.type(operand)) : std::nullopt);
    if (operand.valid()) exchanged += static_cast<double>(bytes(graph.type(operand)));
  }
  for (const ValueId result : node.results) results.push_back(graph.type(result));
  const double compute = std::visit(TileCycles{}, row.cost(OpView(operands, node.attrs), results));
  return start_cycles + compute + std::ceil(exchanged / tiles / exchange_bytes);
}

}  // namespace

int64_t estimated_cycles(const Graph& step, int64_t device_iterations,
                         int64_t gradient_accumulation) {
  double micro_batch = 0, update = 0;
  for (const Node& node : step.nodes()) {
    (node.phase == Phase::update ? update : micro_batch) += cycles_of(step, node);
  }
  const auto iterations = static_cast<double>(device_iterations);
  const auto accumulation = static_cast<double>(gradient_accumulation);
  return static_cast<int64_t>(iterations * (accumulation * micro_batch + update));
}

}  // namespace tessera
