// What the kernels written for one kind of processor give to everything else. x86/ defines it for
// x86-64; on other machines no_x86.cpp says that there is nothing.
#pragma once

#include <span>
#include <vector>

#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/base/half.h"
#include "tessera/ops/fused_body.h"

namespace tessera::cpu {

// In any order: preference.cpp has it.
std::vector<KernelEntry> native_entries();

// Entries for a contraction that goes on with a body, `row`: one `made_of` each of those that the
// contraction has.
std::vector<KernelEntry> native_map_entries(const OpDef& row,
                                            std::span<const KernelEntry* const> contraction);

// Entries for a row of halves, `row`: one `made_of` each of those that the row in f32 has.
std::vector<KernelEntry> native_halves_entries(const OpDef& row,
                                               std::span<const KernelEntry* const> single);

// Whether a step with arguments of these types can be part of a fused body.
bool can_fuse(const BodyStep& step, std::span<const DType> arguments);
// Of one that can be: whether there is code for it. Otherwise the kernel of its row is called,
// which pays only beside other steps.
bool has_code(const BodyStep& step, std::span<const DType> arguments);

// to[j * to_stride + i] = from[i * from_stride + j] for i < rows, j < columns.
using TransposeBlock = void (*)(const float* from, int64_t from_stride, int64_t rows,
                                int64_t columns, float* to, int64_t to_stride);
// The same with elements of two bytes.
using TransposeHalves = void (*)(const Half* from, int64_t from_stride, int64_t rows,
                                 int64_t columns, Half* to, int64_t to_stride);
// Null where there is none that is faster than going through the strides.
TransposeBlock native_transpose(CpuLevel level);
TransposeHalves native_transpose_of_halves(CpuLevel level);

}  // namespace tessera::cpu
