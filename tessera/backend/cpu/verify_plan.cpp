#include "tessera/backend/cpu/verify_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <span>

#include "tessera/backend/cpu/memory_contents.h"
#include "tessera/backend/cpu/value_path.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

// Elements by which two geometries over one shape are told apart: the corners, neighbours and the
// ends of a group in each dimension, and a few in between.
std::vector<int64_t> telling_elements(const Shape& shape) {
  const int64_t count = numel(shape);
  std::vector<int64_t> numbers = {0, count - 1};
  int64_t stride = 1;
  for (size_t dim = shape.size(); dim-- > 0;) {
    for (const int64_t index : {int64_t{1}, Layout::group, shape[dim] - 1}) {
      if (index > 0 && index < shape[dim]) numbers.push_back(index * stride);
    }
    stride *= shape[dim];
  }
  for (const int64_t part : {3, 5, 7}) numbers.push_back(count / part * (part - 1) % count);
  return numbers;
}

class PlanVerifier {
 public:
  explicit PlanVerifier(const Plan& plan)
      : plan_(plan),
        graph_(*plan.graph),
        data_(plan.data_inputs.size()),
        called_(static_cast<size_t>(graph_.node_count()), 0) {}

  std::optional<std::string> run() {
    where_ = "the plan";
    check_buffers();
    if (!broken_) fill_inputs_and_states();
    follow(plan_.load, 0, plan_.load.size(), "load");
    follow(plan_.calls, 0, plan_.update_begin, "micro_batch");
    for (size_t i = 0; i < plan_.outputs.size() && !broken_; ++i) {
      where_ = fmt::format("output {}", i);
      const ValueId value = graph_.outputs()[i].value;
      expect(plan_.outputs[i].value == value, "reads %{}, not %{}", plan_.outputs[i].value.index,
             value.index);
      check_read(plan_.outputs[i]);
    }
    check_states("after a micro-batch", &State::after_micro_batch);
    follow(plan_.calls, plan_.update_begin, plan_.calls.size(), "update");
    check_states("after an update", &State::after_update);
    check_nodes();
    return broken_;
  }

 private:
  template <typename... Args>
  void expect(bool ok, fmt::format_string<Args...> text, Args&&... args) {
    if (ok || broken_) return;
    broken_ = where_ + " " + fmt::format(text, std::forward<Args>(args)...);
  }

  // --- memory
  // --------------------------------------------------------------------------------------

  int64_t size_of_memory(const Buffer& buffer) const {
    switch (buffer.space) {
      case Space::arena:
        return plan_.memory.arena_bytes;
      case Space::state:
        return plan_.memory.state_bytes;
      case Space::hyperparameter:
        return plan_.memory.hyperparameter_bytes;
      case Space::constant:
        return plan_.memory.constant_bytes;
      case Space::data:
        return buffer.bytes;
    }
    return 0;
  }

  MemoryContents& memory_of(const Buffer& buffer) {
    if (buffer.space == Space::data) return data_[static_cast<size_t>(buffer.index)];
    return spaces_[static_cast<size_t>(buffer.space)];
  }

  bool has_buffer(const Place& place) const {
    return place.buffer.valid() && static_cast<size_t>(place.buffer.index) < plan_.buffers.size();
  }

  ByteRange range_of(const Place& place) const {
    const auto size = static_cast<int64_t>(size_of(place.dtype));
    const int64_t start = plan_.buffer(place.buffer).offset;
    return {start + place.geometry.offset * size, start + extent(place.geometry) * size};
  }

  ByteRange range_of(const Buffer& buffer) const {
    return {buffer.offset, buffer.offset + buffer.bytes};
  }

  void check_buffers() {
    for (size_t i = 0; i < plan_.buffers.size(); ++i) {
      const Buffer& buffer = plan_.buffers[i];
      const bool known = buffer.space != Space::data ||
                         (buffer.index >= 0 && static_cast<size_t>(buffer.index) < data_.size());
      expect(known && buffer.offset >= 0 && buffer.bytes >= 0 &&
                 buffer.offset + buffer.bytes <= size_of_memory(buffer),
             "has buffer b{} outside its memory", i);
      expect(buffer.offset % memory_alignment == 0, "has buffer b{} unaligned", i);
    }
    expect(plan_.update_begin <= plan_.calls.size(), "begins its update after its last call");
    expect(plan_.outputs.size() == graph_.outputs().size() &&
               plan_.states.size() == graph_.states().size(),
           "has other outputs or states than its graph");
  }

  void fill(BufferId buffer, ValueId value) {
    const TensorType& type = graph_.type(value);
    own_places_.push_back({buffer, type.dtype, dense(type.shape), value});
    memory_of(plan_.buffer(buffer)).write(range_of(own_places_.back()), &own_places_.back());
  }

  void fill_inputs_and_states() {
    size_t data = 0, hyperparameter = 0;
    for (const Input& input : graph_.inputs()) {
      fill(input.kind == InputKind::data ? plan_.data_inputs[data++]
                                         : plan_.hyperparameters[hyperparameter++],
           input.value);
    }
    for (size_t i = 0; i < plan_.states.size(); ++i) {
      const Place& place = plan_.states[i];
      where_ = fmt::format("state {}", i);
      expect(place.value == graph_.states()[i].initial, "is %{}", place.value.index);
      if (check_place(place)) memory_of(plan_.buffer(place.buffer)).write(range_of(place), &place);
    }
  }

  // --- calls
  // ---------------------------------------------------------------------------------------

  void follow(const std::vector<Call>& calls, size_t begin, size_t end, std::string_view phase) {
    for (size_t i = begin; i < end && !broken_; ++i) {
      const Call& call = calls[i];
      where_ = fmt::format("call {} of {} ({} by {}{}{})", i, phase, call.op, call.kernel,
                           call.origin.empty() ? "" : ", ", call.origin);
      check_node(call);
      for (const Place& place : call.inputs) {
        if (place.buffer.valid()) check_read(place);
      }
      for (const Place& place : call.outputs) check_result(place);
      if (broken_) return;
      check_overlaps(call);
      if (&calls == &plan_.calls) check_lifetimes(call, static_cast<int64_t>(i));
      write_results(call);
    }
  }

  void check_node(const Call& call) {
    if (!call.node.valid()) {
      expect(call.inputs.size() == 1 && call.outputs.size() == 1 &&
                 call.inputs[0].value == call.outputs[0].value,
             "does not copy one value");
      return;
    }
    const Node& node = graph_.node(call.node);
    expect(++called_[static_cast<size_t>(call.node.index)] == 1, "runs a node twice");
    expect(same_values(call.inputs, node.operands), "does not read the operands of its node");
    expect(same_values(call.outputs, node.results), "does not write the results of its node");
  }

  static bool same_values(std::span<const Place> places, std::span<const ValueId> values) {
    return std::equal(places.begin(), places.end(), values.begin(), values.end(),
                      [](const Place& place, ValueId value) {
                        return place.buffer.valid() == value.valid() &&
                               (!value.valid() || place.value == value);
                      });
  }

  // Whether it is one at all: inside its buffer, of its value's type.
  bool check_place(const Place& place) {
    expect(has_buffer(place), "has no buffer for %{}", place.value.index);
    if (broken_) return false;
    expect(place.value.valid() && place.value.index < graph_.value_count(), "names no value");
    if (broken_) return false;
    expect(place.dtype == graph_.type(place.value).dtype, "takes %{} for {}", place.value.index,
           name_of(place.dtype));
    expect(place.geometry.shape.size() == place.geometry.strides.size() &&
               place.geometry.offset >= 0 &&
               extent(place.geometry) * static_cast<int64_t>(size_of(place.dtype)) <=
                   plan_.buffer(place.buffer).bytes,
           "reaches outside the buffer of %{}", place.value.index);
    return !broken_;
  }

  void check_read(const Place& place) {
    if (!check_place(place)) return;
    const Shape& shape = graph_.type(place.value).shape;
    if (numel(place.geometry.shape) == 0) return;
    const Place* written = memory_of(plan_.buffer(place.buffer)).holds(range_of(place));
    expect(written, "reads %{}, of which not all is there: it was not written, or overwritten",
           place.value.index);
    if (broken_) return;
    auto path = path_to(graph_, place.value, written->value);
    if (!path && same_view(place.value, written->value)) path = ViewPath{};
    expect(path.has_value(), "reads %{} where %{} was written last", place.value.index,
           written->value.index);
    if (!broken_) check_elements(place, shape, *written, *path);
  }

  // Whether two views of one value have the same elements in the same order.
  bool same_view(ValueId a, ValueId b) const {
    const ValueId root = root_of(graph_, a);
    const Shape& shape = graph_.type(a).shape;
    if (root_of(graph_, b) != root || numel(graph_.type(b).shape) != numel(shape)) return false;
    const ViewPath from_a = *path_to(graph_, a, root), from_b = *path_to(graph_, b, root);
    const auto numbers = telling_elements(shape);
    return std::all_of(numbers.begin(), numbers.end(), [&](int64_t number) {
      return number_in_base(from_a, number) == number_in_base(from_b, number);
    });
  }

  // Both name the same places for the elements of the value.
  void check_elements(const Place& read, const Shape& shape, const Place& written,
                      const ViewPath& path) {
    const Shape shown = shown_shape(read, shape);
    const Shape base = shown_shape(written, graph_.type(written.value).shape);
    const int64_t read_at = plan_.buffer(read.buffer).offset,
                  written_at = plan_.buffer(written.buffer).offset;
    const auto size = static_cast<int64_t>(size_of(read.dtype));
    for (const int64_t number : telling_elements(shown)) {
      const int64_t in_value = number_before_broadcast(shown, shape, number);
      const int64_t wanted = element_offset(written, base, number_in_base(path, in_value));
      const int64_t got = element_offset(read, shown, number);
      expect(read_at + got * size == written_at + wanted * size,
             "looks for element {} of %{} in another place than it was written to: layouts {} and "
             "{}",
             in_value, read.value.index, to_string(read.layout), to_string(written.layout));
    }
  }

  void check_result(const Place& place) {
    if (!check_place(place)) return;
    const TensorType& type = graph_.type(place.value);
    const Space space = plan_.buffer(place.buffer).space;
    expect(space != Space::data && space != Space::hyperparameter, "writes into an input");
    // A copy for an element-wise call may have more dimensions of size one in front.
    const Shape shown = shown_shape(place, type.shape);
    const bool whole = shown.size() >= type.shape.size() && numel(shown) == numel(type.shape) &&
                       std::equal(type.shape.rbegin(), type.shape.rend(), shown.rbegin());
    expect(whole && fits(place.layout, shown) &&
               place.geometry.shape == physical_shape(place.layout, shown) &&
               same_elements(place.geometry, dense(place.geometry.shape)),
           "does not write every element of %{}", place.value.index);
  }

  void check_overlaps(const Call& call) {
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      for (size_t k = 0; k < i; ++k) {
        expect(!overlap(call.outputs[i], call.outputs[k]), "writes two results over each other");
      }
      for (size_t k = 0; k < call.inputs.size(); ++k) {
        expect(!overlap(call.outputs[i], call.inputs[k]) || may_overlap(call, i, k),
               "writes result {} over operand {}", i, k);
      }
    }
    expect(!call.workspace.valid()
               ? call.run->workspace_bytes() == 0
               : call.run->workspace_bytes() <= plan_.buffer(call.workspace).bytes,
           "has too small a workspace");
    if (!call.workspace.valid()) return;
    const ByteRange workspace = range_of(plan_.buffer(call.workspace));
    for (const auto* places : {&call.inputs, &call.outputs}) {
      for (const Place& place : *places) {
        if (!place.buffer.valid() || plan_.buffer(place.buffer).space != Space::arena) continue;
        expect(!workspace.overlaps(range_of(place)), "works in the memory of %{}",
               place.value.index);
      }
    }
  }

  bool overlap(const Place& a, const Place& b) {
    if (!a.buffer.valid() || !b.buffer.valid()) return false;
    const Buffer &of_a = plan_.buffer(a.buffer), &of_b = plan_.buffer(b.buffer);
    return &memory_of(of_a) == &memory_of(of_b) && range_of(a).overlaps(range_of(b));
  }

  bool may_overlap(const Call& call, size_t result, size_t operand) const {
    if (!call.node.valid()) return false;
    const auto& allowed = op(graph_.node(call.node)).traits.in_place;
    const Place &to = call.outputs[result], &from = call.inputs[operand];
    return std::find(allowed.begin(), allowed.end(), std::pair(result, operand)) != allowed.end() &&
           plan_.buffer(to.buffer).offset == plan_.buffer(from.buffer).offset &&
           from.geometry.shape == to.geometry.shape && same_elements(from.geometry, to.geometry) &&
           from.dtype == to.dtype;
  }

  void check_lifetimes(const Call& call, int64_t number) {
    const auto lives = [&](BufferId id) {
      const Buffer& buffer = plan_.buffer(id);
      return buffer.space != Space::arena ||
             (buffer.first_call <= number && number <= buffer.last_call);
    };
    for (const auto* places : {&call.inputs, &call.outputs}) {
      for (const Place& place : *places) {
        expect(!place.buffer.valid() || lives(place.buffer), "uses %{} when it is not kept",
               place.value.index);
      }
    }
    expect(!call.workspace.valid() || lives(call.workspace), "has no workspace at this time");
  }

  void write_results(const Call& call) {
    if (broken_) return;
    if (call.workspace.valid()) {
      const Buffer& buffer = plan_.buffer(call.workspace);
      memory_of(buffer).write(range_of(buffer), nullptr);
    }
    for (const Place& place : call.outputs) {
      memory_of(plan_.buffer(place.buffer)).write(range_of(place), &place);
    }
  }

  // --- what is left when a phase has ended
  // ---------------------------------------------------------

  void check_states(std::string_view when, ValueId State::*value) {
    for (size_t i = 0; i < plan_.states.size() && !broken_; ++i) {
      where_ = fmt::format("state {} {}", i, when);
      Place place = plan_.states[i];
      place.value = graph_.states()[i].*value;
      check_read(place);
    }
  }

  void check_nodes() {
    where_ = "the plan";
    for (int32_t i = 0; i < graph_.node_count(); ++i) {
      if (op(graph_.node({i})).kind == Kind::view) continue;
      expect(called_[static_cast<size_t>(i)] == 1, "does not run {}", graph_.node({i}).op);
    }
  }

  const Plan& plan_;
  const Graph& graph_;
  std::array<MemoryContents, 5> spaces_;  // by Space; data inputs have memories of their own
  std::vector<MemoryContents> data_;
  std::deque<Place> own_places_;  // of what is there before the first call
  std::vector<int> called_;       // by node
  std::string where_;
  std::optional<std::string> broken_;
};

}  // namespace

std::optional<std::string> find_broken_promise(const Plan& plan) {
  return PlanVerifier(plan).run();
}

void verify(const Plan& plan) {
  const auto start = std::chrono::steady_clock::now();
  const auto broken = find_broken_promise(plan);
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
  log(LogLevel::debug, "verified the plan of {} calls in {:.0f} us", plan.calls.size(),
      taken.count());
  if (broken) TESSERA_UNREACHABLE("plan '{}': {}", plan.name, *broken);
}

}  // namespace tessera::cpu
