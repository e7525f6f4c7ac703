#include "tessera/ops/run_widened.h"

#include <algorithm>

#include "tessera/base/half.h"
#include "tessera/base/scratch.h"
#include "tessera/kernels/copy.h"
#include "tessera/kernels/elementwise.h"
#include "tessera/ops/run_reference.h"

namespace tessera {
namespace {

// The same numbers in f32: dense, except that what repeats an element still does.
class Widened {
 public:
  explicit Widened(const TensorView& half) : half_(half) {
    if (!is_half()) return;
    distinct_ = scratch_copy(half.sizes);
    for (size_t i = 0; i < distinct_.size(); ++i) {
      if (half.strides[i] == 0) distinct_[i] = std::min<int64_t>(distinct_[i], 1);
    }
    strides_ = scratch_strides(distinct_);
    for (size_t i = 0; i < distinct_.size(); ++i) {
      if (distinct_[i] != half.sizes[i]) strides_[i] = 0;
    }
    elements_.resize(static_cast<size_t>(numel(distinct_)));
  }

  // What the kernel sees.
  TensorView view() {
    if (!is_half()) return half_;
    return {reinterpret_cast<std::byte*>(elements_.data()), DType::f32, half_.sizes, strides_,
            true};
  }

  void read(ThreadPool& pool) {
    if (!is_half() || elements_.empty()) return;
    const kernels::Window repeated_once(half_, distinct_, kernels::strides_of(half_));
    const kernels::Dense from(repeated_once.view(), pool);
    for_each_range(pool, [&](size_t begin, size_t count) {
      widen({from.as<Half>() + begin, count}, std::span(elements_).subspan(begin, count));
    });
  }

  // Results are dense.
  void write(ThreadPool& pool) {
    if (!is_half()) return;
    for_each_range(pool, [&](size_t begin, size_t count) {
      narrow(std::span(elements_).subspan(begin, count), {half_.as<Half>() + begin, count});
    });
  }

 private:
  bool is_half() const { return half_.present && half_.dtype == DType::f16; }

  template <typename Work>
  void for_each_range(ThreadPool& pool, const Work& work) {
    pool.run_ranges(static_cast<int64_t>(elements_.size()), elementwise_grain,
                    [&](int64_t begin, int64_t end) {
                      work(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
                    });
  }

  TensorView half_;
  ScratchShape distinct_, strides_;  // `distinct_`: the sizes without what is repeated
  ScratchVector<float> elements_;
};

ScratchVector<Widened> widened(std::span<const TensorView> tensors) {
  return {tensors.begin(), tensors.end()};
}

ScratchVector<TensorView> views_of(ScratchVector<Widened>& tensors) {
  ScratchVector<TensorView> views;
  views.reserve(tensors.size());
  for (Widened& tensor : tensors) views.push_back(tensor.view());
  return views;
}

}  // namespace

void run_widened(const OpDef& op, const KernelCall& call) {
  ScratchVector<Widened> inputs = widened(call.inputs), outputs = widened(call.outputs);
  for (Widened& input : inputs) input.read(call.pool);
  const ScratchVector<TensorView> input_views = views_of(inputs), output_views = views_of(outputs);
  KernelCall in_f32 = call;
  in_f32.inputs = input_views;
  in_f32.outputs = output_views;
  run_reference(op, in_f32);
  for (Widened& output : outputs) output.write(call.pool);
}

}  // namespace tessera
