// Batches of samples that lie in one tensor, made without a tensor for each of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace tessera {

// The given rows of a dense tensor, one after the other. The indices lie within dimension 0.
at::Tensor gathered_rows(const at::Tensor& rows, std::span<const int64_t> indices);

// The same for bytes, each replaced by what the table (256 numbers) has for it.
at::Tensor gathered_rows(const at::Tensor& rows, std::span<const int64_t> indices,
                         const at::Tensor& table);

}  // namespace tessera
