#include "tessera/backend/cpu/lower/layouts.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/base/error.h"
#include "tessera/ops/fused_body.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

// What a call asks of the layouts of its operands and results.
struct Request {
  enum class Kind {
    fixed,     // those in `layouts`, one for each operand and then each result; none: plain
    elements,  // element-wise: any, the same for all, and small operands are spread out
    each,      // each result as its operand lies
    update,    // any, the same for all tensors of the parameter's shape
    follow     // what its operands have, where an entry applies
  };
  Kind kind = Kind::fixed;
  std::vector<Layout> layouts = {};

  Layout input(size_t i) const { return i < layouts.size() ? layouts[i] : Layout{}; }
  Layout output(const DraftCall& call, size_t i) const { return input(call.inputs.size() + i); }
};

// Wherever it begins: kernels are given its first element.
bool is_dense(const Read& read) {
  return same_elements(from_first(read.geometry), dense(read.geometry.shape));
}

// `geometry` broadcast to `shape` as PyTorch does, by strides of 0.
Geometry spread(const Geometry& geometry, const Shape& shape) {
  Geometry out{shape, Strides(shape.size(), 0), geometry.offset};
  const size_t missing = shape.size() - geometry.shape.size();
  for (size_t i = 0; i < geometry.shape.size(); ++i) {
    if (geometry.shape[i] != 1) out.strides[missing + i] = geometry.strides[i];
  }
  return out;
}

bool is_spread(const Geometry& geometry) {
  for (size_t i = 0; i < geometry.shape.size(); ++i) {
    if (geometry.shape[i] != 1 && geometry.strides[i] == 0) return true;
  }
  return false;
}

class LayoutChooser {
 public:
  explicit LayoutChooser(Draft& draft) : draft_(draft) {}

  void choose() {
    for (const DraftCall& call : draft_.calls) requests_.push_back(request_of(call));
    choose_state_layouts();
    std::vector<DraftCall> calls = std::exchange(draft_.calls, {});
    const size_t update_begin = draft_.update_begin;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (i == update_begin) end_micro_batch();
      place(calls[i], requests_[i]);
      draft_.calls.push_back(std::move(calls[i]));
    }
    if (update_begin == calls.size()) end_micro_batch();
    for (DraftState& state : draft_.states) place_in_state(state.after_update, state);
  }

 private:
  // What is read between the phases is converted before the second one begins.
  void end_micro_batch() {
    for (DraftState& state : draft_.states) place_in_state(state.after_micro_batch, state);
    for (Read& read : draft_.outputs) read = in_logical_order(read);
    draft_.update_begin = draft_.calls.size();
  }

  const OpDef& row(const DraftCall& call) const { return op(draft_.graph->node(call.node)); }

  // The use of a call with the given layouts for operands and results; reads must be presentable.
  struct Use {
    std::vector<KernelOperand> inputs, outputs;
  };
  Use use_of(const DraftCall& call, std::span<const Read> reads,
             std::span<const Layout> results) const {
    Use use;
    for (const Read& read : reads) {
      if (!read.block.valid()) {
        use.inputs.push_back({DType::f32, {}, false, {}});
        continue;
      }
      use.inputs.push_back(
          {draft_.block(read.block).type.dtype, from_first(read.geometry), true, read.layout});
    }
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      const TensorType& type = draft_.block(call.outputs[i]).type;
      const Layout layout = i < results.size() ? results[i] : Layout{};
      use.outputs.push_back({type.dtype, dense(physical_shape(layout, type.shape)), true, layout});
    }
    return use;
  }

  KernelUse kernel_use(const DraftCall& call, const Use& use) const {
    return {row(call), draft_.graph->node(call.node).attrs, use.inputs, use.outputs, draft_.target};
  }

  Request request_of(const DraftCall& call) const {
    if (!call.node.valid()) return {};
    const Use use = use_of(call, call.inputs, {});
    RequestedLayouts asked = requested_layouts(kernel_use(call, use));
    if (!asked.layouts.empty()) return {Request::Kind::fixed, std::move(asked.layouts)};
    // Only code that knows the layout has the numbers that elements have in their logical order.
    const Attrs& attrs = draft_.graph->node(call.node).attrs;
    const bool any_order = !reads_random_state(row(call), attrs);
    if (row(call).kind == Kind::elementwise && any_order) return {Request::Kind::elements};
    if (row(call).kind == Kind::collective) return {Request::Kind::each};
    if (row(call).kind == Kind::update) return {Request::Kind::update};
    if (asked.follows) return {Request::Kind::follow};
    return {};
  }

  // A state has one layout for good: that of the first kernel that asks for one. Optimiser states
  // lie as their parameter does.
  void choose_state_layouts() {
    for (size_t i = 0; i < draft_.calls.size(); ++i) {
      const DraftCall& call = draft_.calls[i];
      for (size_t k = 0; k < call.inputs.size(); ++k) {
        const Layout wanted = requests_[i].input(k);
        if (wanted.plain() || !call.inputs[k].block.valid()) continue;
        Block& block = draft_.block(call.inputs[k].block);
        const bool all = call.inputs[k].geometry == dense(block.type.shape);
        if (block.space == Space::state && block.layout.plain() && all) block.layout = wanted;
      }
    }
    for (size_t i = 0; i < draft_.calls.size(); ++i) {
      if (requests_[i].kind != Request::Kind::update) continue;
      const std::vector<Read>& inputs = draft_.calls[i].inputs;
      const Block& parameter = draft_.block(inputs[0].block);
      for (const Read& read : inputs) {
        if (!read.block.valid()) continue;
        Block& block = draft_.block(read.block);
        if (block.space == Space::state && block.type.shape == parameter.type.shape) {
          block.layout = parameter.layout;
        }
      }
    }
  }

  void place(DraftCall& call, const Request& request) {
    switch (request.kind) {
      case Request::Kind::fixed:
        return place_fixed(call, request);
      case Request::Kind::elements:
        return place_elements(call);
      case Request::Kind::each:
        return place_each(call);
      case Request::Kind::update:
        return place_update(call);
      case Request::Kind::follow:
        return place_follower(call);
    }
  }

  void place_fixed(DraftCall& call, const Request& request) {
    if (!call.node.valid() && whole_plain(call.inputs[0])) {
      call.inputs[0] = in_logical_order(call.inputs[0]);
      return;
    }
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      call.inputs[i] = dense_in(call.inputs[i], request.input(i));
    }
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      draft_.block(call.outputs[i]).layout = request.output(call, i);
    }
  }

  void place_elements(DraftCall& call) {
    const Shape shape = draft_.block(call.outputs[0]).type.shape;  // conversions add blocks
    const bool one_shape = std::all_of(call.outputs.begin(), call.outputs.end(), [&](BlockId id) {
      return draft_.block(id).type.shape == shape;
    });
    const Layout layout = one_shape ? most_common_layout(call.inputs, shape) : Layout{};
    for (Read& read : call.inputs) {
      if (!read.block.valid()) continue;
      read = layout.plain() ? in_plain(read) : spread_in(read, layout, shape);
    }
    for (const BlockId id : call.outputs) draft_.block(id).layout = layout;
  }

  void place_each(DraftCall& call) {
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const Read& read = call.inputs[i];
      const Layout layout = whole_plain(read) ? draft_.block(read.block).layout : Layout{};
      call.inputs[i] = dense_in(read, layout);
      draft_.block(call.outputs[i]).layout = layout;
    }
  }

  void place_update(DraftCall& call) {
    const Block& parameter = draft_.block(call.inputs[0].block);
    const Shape shape = parameter.type.shape;
    const Layout layout = parameter.layout;
    for (Read& read : call.inputs) {
      if (!read.block.valid()) continue;
      read = dense_in(read, read.geometry.shape == shape ? layout : Layout{});
    }
    for (const BlockId id : call.outputs) {
      if (draft_.block(id).type.shape == shape) draft_.block(id).layout = layout;
    }
  }

  // Tries the layouts of its operands: in each, first with everything of that rank in the layout
  // but what is repeated, then with that too, then with only those operands that have it already.
  void place_follower(DraftCall& call) {
    for (const Read& leader : call.inputs) {
      if (!leader.block.valid() || draft_.block(leader.block).layout.plain()) continue;
      const Layout layout = draft_.block(leader.block).layout;
      const Shape shape = leader.geometry.shape;
      for (const Takes takes : {Takes::distinct, Takes::all, Takes::those_that_have_it}) {
        if (follow(call, layout, shape, takes)) return;
      }
    }
    for (Read& read : call.inputs) {
      if (read.block.valid()) read = in_plain(read);
    }
  }

  enum class Takes { distinct, all, those_that_have_it };

  bool follow(DraftCall& call, const Layout& layout, const Shape& leader, Takes takes) {
    // Numbers per channel are read where they lie.
    constexpr int64_t small = 64;
    const auto takes_part = [&](const Shape& shape) {
      return shape.size() == leader.size() && fits(layout, shape) &&
             numel(shape) * small >= numel(leader);
    };
    std::vector<Layout> wanted, results;
    std::vector<Read> reads;
    for (const Read& read : call.inputs) {
      const bool has_it = read.block.valid() && draft_.block(read.block).layout == layout;
      const bool wanted_in = takes == Takes::those_that_have_it ? has_it
                             : takes == Takes::distinct         ? !is_spread(read.geometry)
                                                                : true;
      const bool in = read.block.valid() && takes_part(read.geometry.shape) && wanted_in;
      wanted.push_back(in ? layout : Layout{});
      // Asked as it will be: dense in its layout.
      reads.push_back(in ? Read{read.block, read.value,
                                dense(physical_shape(layout, read.geometry.shape)), layout}
                         : read);
    }
    for (const BlockId id : call.outputs) {
      const bool in = takes_part(draft_.block(id).type.shape);
      results.push_back(in ? layout : Layout{});
    }
    const Use use = use_of(call, reads, results);
    if (applying_entries(kernel_use(call, use)).empty()) return false;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      call.inputs[i] = dense_in(call.inputs[i], wanted[i]);
    }
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      draft_.block(call.outputs[i]).layout = results[i];
    }
    return true;
  }

  // The state's new value, as it will lie in the state.
  void place_in_state(Read& read, const DraftState& state) {
    const Layout layout = draft_.block(state.initial).layout;
    read = layout.plain() ? in_logical_order(read) : in_layout(read, layout);
  }

  // The layout that most bytes of the operands of that shape have.
  Layout most_common_layout(std::span<const Read> reads, const Shape& shape) const {
    std::vector<std::pair<Layout, int64_t>> votes;
    for (const Read& read : reads) {
      if (!read.block.valid()) continue;
      const Layout& layout = draft_.block(read.block).layout;
      if (layout.plain() || read.geometry.shape != shape || !presented(read, layout)) continue;
      const auto same = [&](const auto& vote) { return vote.first == layout; };
      const auto at = std::find_if(votes.begin(), votes.end(), same);
      if (at == votes.end()) {
        votes.emplace_back(layout, 1);
      } else {
        ++at->second;
      }
    }
    const auto most =
        std::max_element(votes.begin(), votes.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == votes.end() ? Layout{} : most->first;
  }

  // --- reads in a layout; `read` has its logical geometry
  // -----------------------------------------

  bool whole_plain(const Read& read) const {
    return read.geometry == dense(draft_.block(read.block).type.shape);
  }

  // Without moving anything; nothing where that cannot be.
  std::optional<Read> presented(const Read& read, const Layout& layout) const {
    const Block& block = draft_.block(read.block);
    if (block.layout == layout) {
      auto geometry = physical_view(layout, block.type.shape, read.geometry);
      if (!geometry) return std::nullopt;
      return Read{read.block, read.value, *std::move(geometry), layout};
    }
    if (!block.layout.plain() || !fits(layout, read.geometry.shape)) return std::nullopt;
    return Read{read.block, read.value, physical_geometry(layout, read.geometry), layout};
  }

  Read in_plain(const Read& read) {
    if (draft_.block(read.block).layout.plain()) return read;
    return {converted(read.block, {}), read.value, read.geometry, {}};
  }

  // Perhaps strided.
  Read in_layout(const Read& read, const Layout& layout) {
    if (auto ready = presented(read, layout)) return *std::move(ready);
    auto ready = presented(in_plain(read), layout);
    TESSERA_INVARIANT(ready, "{} does not fit {}", to_string(layout),
                      to_string(TensorType{DType::f32, read.geometry.shape}));
    return *std::move(ready);
  }

  // Kernels other than element-wise ones read other layouts dense; plain operands as they are.
  Read dense_in(const Read& read, const Layout& layout) {
    if (!read.block.valid()) return read;
    if (layout.plain()) return in_plain(read);
    if (const auto ready = presented(read, layout); ready && is_dense(*ready)) return *ready;
    const BlockId block = whole_plain(read) ? converted(read.block, layout) : copied(read, layout);
    Read whole = read_whole(draft_, block);
    whole.value = read.value;
    return whole;
  }

  // A small operand is read where it lies, a large one is brought into the layout first.
  Read spread_in(const Read& read, const Layout& layout, const Shape& shape) {
    const Read wide{read.block, read.value, spread(read.geometry, shape), {}};
    const bool same_layout = draft_.block(read.block).layout == layout;
    if (!same_layout && !is_spread(wide.geometry) && numel(shape) == numel(read.geometry.shape)) {
      return dense_in(wide, layout);
    }
    return in_layout(wide, layout);
  }

  Read in_logical_order(const Read& read) {
    if (draft_.block(read.block).layout.plain()) return read;
    if (!whole_plain(read)) return in_plain(read);
    Read whole = read_in_order(draft_, read.block);
    whole.value = read.value;
    return whole;
  }

  // All of a block in another layout; made once.
  BlockId converted(BlockId from, const Layout& layout) {
    const std::pair key(from.index, to_string(layout));
    if (const auto known = conversions_.find(key); known != conversions_.end()) {
      return known->second;
    }
    Read read = read_in_order(draft_, from);
    if (!layout.plain()) {
      if (!draft_.block(from).layout.plain()) from = converted(from, {});
      const Block& block = draft_.block(from);
      read = {from, block.value, physical_geometry(layout, dense(block.type.shape)), layout};
    }
    const BlockId to = add_copy(read, draft_.block(from).type, layout);
    return conversions_[key] = to;
  }

  BlockId copied(const Read& read, const Layout& layout) {
    const DType dtype = draft_.block(read.block).type.dtype;
    return add_copy(in_layout(read, layout), {dtype, read.geometry.shape}, layout);
  }

  BlockId add_copy(const Read& read, const TensorType& type, const Layout& layout) {
    const BlockId to = draft_.add_block(type, read.value);
    draft_.block(to).layout = layout;
    draft_.calls.push_back({{}, {read}, {to}});
    return to;
  }

  Draft& draft_;
  std::vector<Request> requests_;  // by call
  std::map<std::pair<int32_t, std::string>, BlockId> conversions_;
};

}  // namespace

void choose_layouts(Draft& draft) { LayoutChooser(draft).choose(); }

}  // namespace tessera::cpu
