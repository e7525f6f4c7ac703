#ifdef TESSERA_WITH_ONEDNN

#include "tessera/backend/cpu/kernels/onednn/onednn.h"

#include <utility>

#include "tessera/backend/cpu/plan.h"
#include "tessera/base/error.h"

namespace tessera::cpu {

const dnnl::engine& onednn_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::primitive_attr onednn_attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

int64_t aligned_bytes(const dnnl::memory::desc& desc) {
  return aligned(static_cast<int64_t>(desc.get_size()));
}

// Streams hold no state on CPUs, but are not promised to be usable by several threads: each has its
// own.
OnednnRun::OnednnRun(const OnednnPrimitive& primitive, std::initializer_list<Argument> arguments)
    : primitive_(primitive), stream_(onednn_engine()), count_(0) {
  const auto add = [&](int name, const dnnl::memory::desc& desc) {
    memory_[count_] = dnnl::memory(desc, onednn_engine(), DNNL_MEMORY_NONE);
    arguments_[count_] = {name, memory_[count_].get()};
    ++count_;
  };
  TESSERA_INVARIANT(arguments.size() < most_arguments, "{} arguments", arguments.size());
  for (const Argument& argument : arguments) add(argument.name, argument.desc);
  if (primitive.scratch_.get_size() > 0) add(DNNL_ARG_SCRATCHPAD, primitive.scratch_);
}

// The functions of C: those of C++ make a vector of the arguments.
void OnednnRun::operator()(std::initializer_list<const std::byte*> data, std::byte* scratch) const {
  const auto put = [&](size_t i, const std::byte* at) {
    const auto status =
        dnnl_memory_set_data_handle(arguments_[i].memory, const_cast<std::byte*>(at));
    TESSERA_INVARIANT(status == dnnl_success, "oneDNN says {}", static_cast<int>(status));
  };
  size_t i = 0;
  for (const std::byte* at : data) put(i++, at);
  if (i < count_) put(i, scratch);
  const auto status = dnnl_primitive_execute(primitive_.primitive_.get(), stream_.get(),
                                             static_cast<int>(count_), arguments_.data());
  TESSERA_INVARIANT(status == dnnl_success, "oneDNN says {}", static_cast<int>(status));
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

OnednnConversion::OnednnConversion(const OnednnLayout& layout) : layout_(layout) {
  if (!layout.reorder_) return;
  const bool to = layout.direction_ == OnednnLayout::Direction::to_primitive;
  run_.emplace(*layout.reorder_, std::initializer_list<OnednnRun::Argument>{
                                     {to ? DNNL_ARG_FROM : DNNL_ARG_TO, layout.plain_},
                                     {to ? DNNL_ARG_TO : DNNL_ARG_FROM, layout.wanted_}});
}

void OnednnConversion::operator()(std::byte* plain, std::byte* room) const {
  if (run_) (*run_)({plain, room}, room + aligned_bytes(layout_.wanted_));
}

}  // namespace tessera::cpu

#endif
