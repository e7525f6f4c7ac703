#include "tessera/torch/storage_versions.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/fake_storage.h"

namespace tessera {
namespace {

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

bool fills_storage(const at::Tensor& tensor) {
  const auto elements = static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
  return tensor.numel() == elements && memory_order(geometry_of(tensor)).has_value();
}

// Whether no two elements lie in one place.
bool has_own_places(const Geometry& geometry) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t i = 0; i < geometry.shape.size(); ++i) {
    if (geometry.shape[i] == 0) return true;
    if (geometry.shape[i] != 1) dims.emplace_back(geometry.strides[i], geometry.shape[i]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;
  bool beyond = true;  // each step leads past all that lies along the inner dimensions
  for (const auto& [stride, size] : dims) {
    beyond = beyond && stride > reach;
    reach += stride * (size - 1);
  }
  if (beyond) return true;
  std::vector<bool> taken(static_cast<size_t>(reach) + 1);
  std::vector<int64_t> places = {0};
  for (const auto& [stride, size] : dims) {
    const size_t inner = places.size();
    for (int64_t i = 1; i < size; ++i) {
      for (size_t k = 0; k < inner; ++k) places.push_back(places[k] + i * stride);
    }
  }
  for (const int64_t place : places) {
    if (taken[static_cast<size_t>(place)]) return false;
    taken[static_cast<size_t>(place)] = true;
  }
  return true;
}

bool row_major(const Geometry& geometry) { return same_elements(geometry, dense(geometry.shape)); }

}  // namespace

at::Tensor standing_for_storage(const at::Tensor& tensor) {
  if (fills_storage(tensor)) {
    return window_over(tensor.storage(), tensor.scalar_type(), geometry_of(tensor));
  }
  const auto elements = static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
  return window_over(tensor.storage(), tensor.scalar_type(), dense({elements}));
}

StorageVersions::Content& StorageVersions::content_of(const at::Tensor& tensor) {
  const auto* key = storage_of(tensor);
  auto at = contents_.find(key);
  if (at == contents_.end()) {
    Found found = outside_(tensor);
    at = contents_
             .emplace(key, Content{found.value, std::move(found.geometry),
                                   dtype_of(tensor.scalar_type()), tensor.storage()})
             .first;
  }
  check(at->second.dtype == dtype_of(tensor.scalar_type()),
        "a tensor of type {} is looked at as {}; use .to() to convert it",
        name_of(at->second.dtype), name_of(dtype_of(tensor.scalar_type())));
  return at->second;
}

void StorageVersions::make_row_major(Content& content) {
  if (row_major(content.geometry)) return;
  const auto order = memory_order(content.geometry);
  TESSERA_INVARIANT(order, "a storage's content has gaps");
  content.value = builder_.add("copy", {builder_.permute(content.value, order->dims)});
  content.geometry = dense(builder_.shape(content.value));
}

ValueId StorageVersions::read(const at::Tensor& tensor) {
  Content& content = content_of(tensor);
  const Geometry window = geometry_of(tensor);
  if (same_elements(window, content.geometry)) return content.value;
  if (!row_major(content.geometry)) {
    // Seen in memory order the content is a permutation of the value: often a view says it all.
    const auto order = memory_order(content.geometry);
    Geometry permuted;
    const Shape& shape = builder_.shape(content.value);
    const Strides strides = contiguous_strides(shape);
    for (const int64_t dim : order->dims) {
      permuted.shape.push_back(shape[static_cast<size_t>(dim)]);
      permuted.strides.push_back(strides[static_cast<size_t>(dim)]);
    }
    if (const auto direct = compose(permuted, window)) {
      return builder_.view(content.value, direct->shape, direct->strides, direct->offset);
    }
    make_row_major(content);
  }
  return builder_.view(content.value, window.shape, window.strides, window.offset);
}

void StorageVersions::define(const at::Tensor& tensor, ValueId value) {
  TESSERA_INVARIANT(fills_storage(tensor), "a fresh tensor {} has gaps in its storage",
                    to_string(shape_of(tensor)));
  contents_.insert_or_assign(storage_of(tensor),
                             Content{value, geometry_of(tensor), dtype_of(tensor.scalar_type()),
                                     tensor.storage(), /*written=*/true});
}

void StorageVersions::write(const at::Tensor& tensor, ValueId value) {
  const Geometry window = geometry_of(tensor);
  if (fills_storage(tensor)) {
    // What was there before is gone, so it need not be read.
    define(tensor, value);
    return;
  }
  check(has_own_places(window),
        "an operator changes in place a view of shape {} whose elements share memory, as those of "
        "unfold, expand and as_strided do; what comes of it depends on their order: change a "
        "clone() of it",
        to_string(window.shape));
  Content& content = content_of(tensor);
  content.written = true;
  make_row_major(content);
  content.value = builder_.add("write_view", {content.value, value},
                               {{"strides", window.strides}, {"offset", window.offset}});
}

bool StorageVersions::seen(const at::Tensor& tensor) const {
  return contents_.contains(storage_of(tensor));
}

bool StorageVersions::untouched(const at::Tensor& tensor) const {
  const auto at = contents_.find(storage_of(tensor));
  return at == contents_.end() || !at->second.written;
}

}  // namespace tessera
