#ifdef TESSERA_WITH_ONEDNN

#include "tessera/backend/cpu/kernels/onednn.h"

#include <utility>

#include "tessera/backend/cpu/plan.h"

namespace tessera::cpu {
namespace {

// Streams hold no state on CPUs, but are not promised to be usable by several threads.
dnnl::stream& stream_of_thread() {
  thread_local dnnl::stream stream(onednn_engine());
  return stream;
}

}  // namespace

const dnnl::engine& onednn_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::primitive_attr onednn_attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::memory onednn_memory(const dnnl::memory::desc& desc, const std::byte* data) {
  return {desc, onednn_engine(), const_cast<std::byte*>(data)};
}

int64_t aligned_bytes(const dnnl::memory::desc& desc) {
  return aligned(static_cast<int64_t>(desc.get_size()));
}

void OnednnPrimitive::run(std::unordered_map<int, dnnl::memory> arguments,
                          std::byte* scratch) const {
  if (scratch_.get_size() > 0) {
    arguments.emplace(DNNL_ARG_SCRATCHPAD, onednn_memory(scratch_, scratch));
  }
  primitive_.execute(stream_of_thread(), arguments);
}

OnednnLayout::OnednnLayout(dnnl::memory::desc plain, dnnl::memory::desc wanted, Direction direction)
    : plain_(std::move(plain)), wanted_(std::move(wanted)), direction_(direction) {
  if (plain_ == wanted_) return;
  const bool to = direction_ == Direction::to_primitive;
  const auto& engine = onednn_engine();
  reorder_.emplace(dnnl::reorder::primitive_desc(engine, to ? plain_ : wanted_, engine,
                                                 to ? wanted_ : plain_, onednn_attributes()));
}

int64_t OnednnLayout::bytes() const {
  return reorder_ ? aligned_bytes(wanted_) + reorder_->scratch_bytes() : 0;
}

void OnednnLayout::convert(std::byte* plain, std::byte* room) const {
  if (!reorder_) return;
  const bool to = direction_ == Direction::to_primitive;
  const dnnl::memory outside = onednn_memory(plain_, plain);
  const dnnl::memory inside = onednn_memory(wanted_, room);
  reorder_->run({{DNNL_ARG_FROM, to ? outside : inside}, {DNNL_ARG_TO, to ? inside : outside}},
                room + aligned_bytes(wanted_));
}

}  // namespace tessera::cpu

#endif
