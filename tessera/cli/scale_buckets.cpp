#include "tessera/cli/scale_buckets.h"

#include <algorithm>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/cli/cli_text.h"
#include "tessera/ops/registry.h"

namespace tessera {
namespace {

double bytes_of(const Graph& graph, const std::vector<ValueId>& values) {
  double sum = 0;
  for (const ValueId value : values) {
    if (value.valid()) sum += static_cast<double>(bytes(graph.type(value)));
  }
  return sum;
}

// A file may name more than there can be.
int64_t whole(double bytes) { return static_cast<int64_t>(std::min(bytes, 1e15)); }

double work_of(const Graph& graph, const Node& node, const OpDef& row) {
  if (!row.cost) return 0;
  std::vector<std::optional<TensorType>> operands;
  std::vector<TensorType> results;
  for (const ValueId operand : node.operands) {
    operands.push_back(operand.valid() ? std::optional(graph.type(operand)) : std::nullopt);
  }
  for (const ValueId result : node.results) results.push_back(graph.type(result));
  return work(row.cost(OpView(operands, node.attrs), results));
}

// What a node takes of the step, in a unit of its own: the longer of computing and moving.
double weight_of(const Graph& graph, const Node& node) {
  constexpr double operations_per_byte = 4;  // done while a byte is moved, on today's processors
  const OpDef& row = op(node);
  const bool free = row.kind == Kind::view || row.kind == Kind::source;
  if (free || row.kind == Kind::collective) return 0;  // collectives are priced by their links
  const double moved = bytes_of(graph, node.operands) + bytes_of(graph, node.results);
  return std::max(work_of(graph, node, row), operations_per_byte * moved);
}

// Weights of the two phases, and how much of a micro-batch has run when a value is there.
class Progress {
 public:
  explicit Progress(const Graph& graph)
      : graph_(graph), reached_(static_cast<size_t>(graph.value_count()), 0.0) {
    for (const Node& node : graph.nodes()) {
      const bool in_update = node.phase == Phase::update;
      (in_update ? update_ : micro_batch_) += weight_of(graph, node);
      for (const ValueId result : node.results) {
        at(result) = in_update ? when_ready(node, result) : micro_batch_;
      }
    }
  }

  double micro_batch() const { return micro_batch_; }
  double update() const { return update_; }

  double share(ValueId value) const {
    return micro_batch_ > 0 ? reached_[static_cast<size_t>(value.index)] / micro_batch_ : 1;
  }

 private:
  double& at(ValueId value) { return reached_[static_cast<size_t>(value.index)]; }

  // In the update a gradient is only multiplied and converted before it is used. What it is
  // multiplied with is a number, which may come of all gradients and is there when they are.
  double when_ready(const Node& node, ValueId result) {
    double latest = 0;
    const int64_t elements = numel(graph_.type(result).shape);
    for (const ValueId operand : node.operands) {
      if (!operand.valid() || numel(graph_.type(operand).shape) != elements) continue;
      latest = std::max(latest, at(operand));
    }
    return latest;
  }

  const Graph& graph_;
  std::vector<double> reached_;  // by value
  double micro_batch_ = 0, update_ = 0;
};

std::vector<Bucket> buckets_of_reductions(const Graph& step, const Progress& progress) {
  std::vector<Bucket> buckets;
  for (const Node& node : step.nodes()) {
    if (op(node).kind != Kind::collective) continue;
    Bucket bucket{.bytes = whole(bytes_of(step, node.operands)), .ready = 0};
    for (const ValueId gradient : node.operands) {
      bucket.ready = std::max(bucket.ready, progress.share(gradient));
    }
    buckets.push_back(bucket);
  }
  return buckets;
}

// Neighbours share a bucket while they fit.
void add_to_buckets(std::vector<Bucket>& buckets, const Bucket& gradient) {
  if (buckets.empty() || gradient.bytes > most_bucket_bytes - buckets.back().bytes) {
    buckets.push_back(gradient);
    return;
  }
  buckets.back().bytes += gradient.bytes;
  buckets.back().ready = std::max(buckets.back().ready, gradient.ready);
}

// An update's gradient is its second operand, after the parameter. Where a rewrite left only a
// factor of it, it has the parameter's size nevertheless.
std::vector<Bucket> buckets_of_updates(const Graph& step, const Progress& progress) {
  std::vector<Bucket> buckets;
  for (const Node& node : step.nodes()) {
    if (op(node).kind != Kind::update) continue;
    const ValueId parameter = node.operands.at(0), gradient = node.operands.at(1);
    const TensorType type{step.type(gradient).dtype, step.type(parameter).shape};
    add_to_buckets(buckets, {whole(static_cast<double>(bytes(type))), progress.share(gradient)});
  }
  return buckets;
}

void sort_by_ready(std::vector<Bucket>& buckets) {
  std::stable_sort(buckets.begin(), buckets.end(),
                   [](const Bucket& a, const Bucket& b) { return a.ready < b.ready; });
}

}  // namespace

GradientBuckets buckets_of(const Graph& step, int64_t accumulation) {
  const Progress progress(step);
  GradientBuckets found{.buckets = buckets_of_reductions(step, progress)};
  if (found.buckets.empty()) found.buckets = buckets_of_updates(step, progress);
  std::erase_if(found.buckets, [](const Bucket& bucket) { return bucket.bytes == 0; });
  check(!found.buckets.empty(), ErrorKind::value,
        "program '{}' has no gradients to add up: no optimiser's update is in it; a training "
        "model was wanted, or sizes with --bucket or --parameters",
        shown(step.name));
  const auto micro_batches = static_cast<double>(accumulation);
  for (Bucket& bucket : found.buckets) {
    bucket.ready = (micro_batches - 1 + bucket.ready) / micro_batches;
  }
  sort_by_ready(found.buckets);
  const double all = micro_batches * progress.micro_batch() + progress.update();
  found.update_share = all > 0 ? progress.update() / all : 0;
  return found;
}

GradientBuckets buckets_of(const std::vector<int64_t>& bytes) {
  GradientBuckets made;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const double share = static_cast<double>(i + 1) / static_cast<double>(bytes.size());
    made.buckets.push_back({bytes[i], (1 + 2 * share) / 3});
  }
  return made;
}

GradientBuckets buckets_of_parameters(int64_t parameters) {
  constexpr int64_t most = 1000000000000;
  check(parameters >= 1 && parameters <= most, ErrorKind::value,
        "the number of parameters must be from 1 to {}, not {}", most, parameters);
  std::vector<int64_t> sizes;
  for (int64_t left = parameters * 4; left > 0; left -= sizes.back()) {
    sizes.push_back(std::min(left, most_bucket_bytes));
  }
  return buckets_of(sizes);
}

}  // namespace tessera
