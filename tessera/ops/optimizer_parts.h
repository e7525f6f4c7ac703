// What the rows of optimisers share. Their operands stand in one order: param, grad, step (how many
// updates there were), what the optimiser remembers of each element, then its numbers, each f32[2].
// Their results are the new param, step and memories, in this order; those that may be left out
// come last. Param, grad and each memory may be f16 or f32, whatever the others are; a result has
// the type of what it replaces. Kernels compute in f32 and only see that: halves are widened around
// them.
#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "tessera/kernels/elementwise.h"
#include "tessera/ops/op_def.h"
#include "tessera/ops/row_parts.h"

namespace tessera::optimizer_parts {

// Rows of the family that have files of their own.
OpDef adam_row();
OpDef lamb_row();
OpDef rmsprop_row();
OpDef rmsprop_centered_row();

enum Operand : size_t { param, grad, step, memory };  // `memory`: the first of them

// The rule of every optimiser's row. Numbers begin at operand `numbers`.
std::vector<TensorType> infer_update(const OpView& op, size_t numbers);

// Each result over the operand of its name.
Traits update_traits(size_t numbers);

double number(const KernelCall& call, size_t operand);
float updates_so_far(const KernelCall& call);
void count_update(const KernelCall& call);  // writes the result `step`; after reading all numbers

// A sample: numbers between 0.01 and 0.5, `steps` updates so far; `memories` are there of those the
// row could have.
Sample update_sample(const Shape& shape, size_t numbers, size_t count, size_t memories,
                     double steps);

// Without a gradient, what is remembered of an element shrinks by a part in each step, and ends as
// a subnormal number: many CPUs compute a hundred times longer with those. Here it ends as zero.
inline float remembered(float value) {
  return std::abs(value) < std::numeric_limits<float>::min() ? 0.0F : value;
}

// Results from operands, element for element: `rule` makes std::array<float, Out> of
// std::array<float, In>. A result may be written over an operand.
template <size_t In, size_t Out, typename Rule>
void update_elements(const KernelCall& call, const std::array<TensorView, In>& operands,
                     const std::array<size_t, Out>& results, const Rule& rule) {
  struct Context {
    const Rule& rule;
    std::array<float*, Out> out;
    std::array<bool, Out> is_memory;
  };
  for (const TensorView& operand : operands) expect_elements_of<float>(operand.dtype);
  Context context{rule, {}, {}};
  for (size_t i = 0; i < Out; ++i) {
    context.out[i] = call.outputs[results[i]].template as<float>();
    context.is_memory[i] = results[i] != param;
  }
  const auto work = [](const void* erased, const std::byte* const* blocks, int64_t begin,
                       int64_t length) {
    const auto& c = *static_cast<const Context*>(erased);
// Elements only meet themselves.
#pragma GCC ivdep
    for (int64_t k = 0; k < length; ++k) {
      std::array<float, In> in;
      for (size_t i = 0; i < In; ++i) in[i] = reinterpret_cast<const float*>(blocks[i])[k];
      const std::array<float, Out> out = c.rule(in);
      for (size_t i = 0; i < Out; ++i) {
        c.out[i][begin + k] = c.is_memory[i] ? remembered(out[i]) : out[i];
      }
    }
  };
  for_each_block(call.pool, operands, call.outputs[results[0]].sizes, work, &context);
}

}  // namespace tessera::optimizer_parts
