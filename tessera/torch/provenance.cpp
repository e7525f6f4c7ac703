#include "tessera/torch/provenance.h"

#include <ATen/SequenceNumber.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>

namespace tessera {
namespace {

// Callbacks are plain functions: they find the capture through this. One capture runs at a time.
std::atomic<std::vector<int64_t>*> running_nodes{nullptr};
std::atomic<int64_t*> last_finished_node{nullptr};

std::unique_ptr<at::ObserverContext> node_begins(const at::RecordFunction& function) {
  if (auto* running = running_nodes.load()) running->push_back(function.seqNr());
  return nullptr;
}

void node_ends(const at::RecordFunction&, at::ObserverContext*) {
  auto* running = running_nodes.load();
  if (!running || running->empty()) return;
  *last_finished_node.load() = running->back();
  running->pop_back();
}

}  // namespace

std::string place(const Origin& origin) {
  if (!origin.file.empty()) return fmt::format("{}:{}", origin.file, origin.line);
  return origin.module.empty() ? "forward" : origin.module;
}

Provenance::Provenance(std::function<Origin()> locate) : locate_(std::move(locate)) {
  running_nodes = &running_;
  last_finished_node = &last_finished_;
  callback_ = at::addThreadLocalCallback(at::RecordFunctionCallback(node_begins, node_ends)
                                             .scopes({at::RecordScope::BACKWARD_FUNCTION}));
}

Provenance::~Provenance() {
  at::removeCallback(callback_);
  running_nodes = nullptr;
  last_finished_node = nullptr;
}

void Provenance::name_module(const std::string& path) {
  if (!backward_ && !forward_.empty()) forward_.back().origin.module = path;
}

Origin Provenance::origin() {
  // The node that will differentiate this operator is numbered just before its kernel runs.
  const int64_t newest = static_cast<int64_t>(at::sequence_number::peek()) - 1;
  own_ = newest == newest_ ? -1 : newest;
  newest_ = newest;
  if (!backward_) {
    Origin origin = locate_ ? locate_() : Origin{};
    forward_.push_back({newest, origin});
    return origin;
  }
  const int64_t sequence = running_.empty() ? last_finished_ : running_.back();
  // Not equal but the nearest before: an in-place operator on a view is numbered later.
  const auto later = [](int64_t wanted, const ForwardOp& op) { return wanted < op.sequence; };
  const auto after = std::upper_bound(forward_.begin(), forward_.end(), sequence, later);
  Origin origin;
  if (after != forward_.begin()) {
    // Operators without a derivative share the number of the one before them, which comes first.
    const auto earlier = [](const ForwardOp& op, int64_t wanted) { return op.sequence < wanted; };
    origin = std::lower_bound(forward_.begin(), after, std::prev(after)->sequence, earlier)->origin;
  }
  origin.backward = true;
  return origin;
}

}  // namespace tessera
