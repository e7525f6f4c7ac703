// Element-wise maps: each element of the dense result is f of the operands' elements at its
// (broadcast) place. The result may be the memory of a dense operand of the same type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "tessera/base/scratch.h"
#include "tessera/base/tensor_view.h"
#include "tessera/base/thread_pool.h"

namespace tessera {

constexpr int64_t elementwise_grain = 16384;  // elements of one piece of parallel work

// Dense blocks of the operands, and where the block begins in the result.
using BlockWork = void (*)(const void* context, const std::byte* const* operands, int64_t begin,
                           int64_t count);

// Calls `work` for consecutive blocks that together are all elements of `shape`.
void for_each_block(ThreadPool& pool, std::span<const TensorView> operands,
                    std::span<const int64_t> shape, BlockWork work, const void* context);

namespace detail {

template <typename F, typename Out, typename... In>
void map_block(const F& f, Out* out, int64_t count, const In*... in) {
// Elements only meet themselves, even where the result is written over an operand.
#pragma GCC ivdep
  for (int64_t k = 0; k < count; ++k) out[k] = f(in[k]...);
}

}  // namespace detail

// InternalError where an operand is not of its C++ type.
template <typename... In>
void expect_elements(std::span<const TensorView> operands) {
  size_t i = 0;
  (expect_elements_of<In>(operands[i++].dtype), ...);
}

// out = f(operands...), with operands of the C++ types In, in their order.
template <typename Out, typename... In, typename F>
void map(ThreadPool& pool, std::span<const TensorView> operands, const TensorView& out,
         const F& f) {
  struct Context {
    const F& f;
    Out* out;
  };
  expect_elements<In...>(operands);
  const Context context{f, out.as<Out>()};
  const auto work = [](const void* erased, const std::byte* const* blocks, int64_t begin,
                       int64_t count) {
    const auto& c = *static_cast<const Context*>(erased);
    [&]<size_t... i>(std::index_sequence<i...>) {
      detail::map_block(c.f, c.out + begin, count, reinterpret_cast<const In*>(blocks[i])...);
    }
    (std::index_sequence_for<In...>{});
  };
  for_each_block(pool, operands.first(sizeof...(In)), out.sizes, work, &context);
}

// The sum of f(operands...) over the elements of `shape`: in double, in an order fixed by the
// shape.
template <typename... In, typename F>
double map_sum(ThreadPool& pool, std::span<const TensorView> operands,
               std::span<const int64_t> shape, const F& f) {
  expect_elements<In...>(operands);
  struct Context {
    const F& f;
    ScratchVector<double> pieces;
  };
  Context context{f,
                  ScratchVector<double>(static_cast<size_t>(numel(shape) / elementwise_grain + 1))};
  const auto work = [](const void* erased, const std::byte* const* blocks, int64_t begin,
                       int64_t count) {
    auto& c = *static_cast<Context*>(const_cast<void*>(erased));
    double& sum = c.pieces[static_cast<size_t>(begin / elementwise_grain)];
    [&]<size_t... i>(std::index_sequence<i...>) {
      for (int64_t k = 0; k < count; ++k) {
        sum += static_cast<double>(c.f(reinterpret_cast<const In*>(blocks[i])[k]...));
      }
    }
    (std::index_sequence_for<In...>{});
  };
  for_each_block(pool, operands.first(sizeof...(In)), shape, work, &context);
  double sum = 0;
  for (const double piece : context.pieces) sum += piece;
  return sum;
}

}  // namespace tessera
