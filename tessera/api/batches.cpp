#include "tessera/api/batches.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/torch/convert.h"

namespace tessera {
namespace {

at::Tensor room_for(const at::Tensor& rows, size_t count, at::ScalarType type) {
  Shape shape = shape_of(rows);
  shape[0] = static_cast<int64_t>(count);
  return at::detail::empty_cpu(shape, type);
}

void check_rows(const at::Tensor& rows, std::span<const int64_t> indices) {
  TESSERA_INVARIANT(rows.dim() > 0 && rows.is_cpu() && rows.is_contiguous(),
                    "rows of a tensor {} that is not dense", to_string(shape_of(rows)));
  const bool inside = std::all_of(indices.begin(), indices.end(), [&](int64_t index) {
    return index >= 0 && index < rows.size(0);
  });
  TESSERA_INVARIANT(inside, "an index is not within {} rows", rows.size(0));
}

}  // namespace

at::Tensor gathered_rows(const at::Tensor& rows, std::span<const int64_t> indices) {
  check_rows(rows, indices);
  at::Tensor batch = room_for(rows, indices.size(), rows.scalar_type());
  if (batch.numel() == 0) return batch;
  const size_t row_bytes = batch.nbytes() / indices.size();
  const auto* from = static_cast<const std::byte*>(rows.data_ptr());
  auto* to = static_cast<std::byte*>(batch.data_ptr());
  for (const int64_t index : indices) {
    std::memcpy(to, from + static_cast<size_t>(index) * row_bytes, row_bytes);
    to += row_bytes;
  }
  return batch;
}

at::Tensor gathered_rows(const at::Tensor& rows, std::span<const int64_t> indices,
                         const at::Tensor& table) {
  check_rows(rows, indices);
  TESSERA_INVARIANT(rows.scalar_type() == at::kByte && table.scalar_type() == at::kFloat &&
                        table.numel() == 256 && table.is_contiguous(),
                    "a table needs bytes to look up and 256 numbers");
  at::Tensor batch = room_for(rows, indices.size(), at::kFloat);
  if (batch.numel() == 0) return batch;
  const auto row_size = static_cast<size_t>(batch.numel()) / indices.size();
  const auto* from = rows.data_ptr<uint8_t>();
  const auto* numbers = table.data_ptr<float>();
  auto* to = batch.data_ptr<float>();
  for (const int64_t index : indices) {
    const uint8_t* row = from + static_cast<size_t>(index) * row_size;
    for (size_t i = 0; i < row_size; ++i) to[i] = numbers[row[i]];
    to += row_size;
  }
  return batch;
}

}  // namespace tessera
