// Which graph value each storage holds right now. PyTorch's tensors are windows over storages:
// reading one gives the value seen through its window, writing one makes a new value of the whole
// storage. So views cost no node of their own and in-place operators become pure ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <unordered_map>

#include "tessera/base/geometry.h"
#include "tessera/ops/builder.h"

namespace tessera {

class StorageVersions {
 public:
  // What a storage holds that is seen for the first time: a value, and how its elements lie in the
  // storage, without gaps or overlap.
  struct Found {
    ValueId value;
    Geometry geometry;
  };
  using Outside = std::function<Found(const at::Tensor&)>;

  StorageVersions(Builder& builder, Outside outside)
      : builder_(builder), outside_(std::move(outside)) {}

  // The tensor's value now, of the tensor's shape.
  ValueId read(const at::Tensor& tensor);

  // Says what a fresh tensor holds.
  void define(const at::Tensor& tensor, ValueId value);

  // From now on the tensor's window holds `value`, which has the tensor's shape and type.
  void write(const at::Tensor& tensor, ValueId value);

  // True where the storage's content is part of the graph.
  bool seen(const at::Tensor& tensor) const;

  // True where nothing was written over the content the storage had when it was first seen.
  bool untouched(const at::Tensor& tensor) const;

 private:
  struct Content {
    ValueId value;
    Geometry geometry;  // how the value's elements lie in the storage: no gaps, no overlap
    DType dtype;
    c10::Storage keep_alive;  // so that its address is not used again
    bool written = false;
  };

  Content& content_of(const at::Tensor& tensor);
  void make_row_major(Content& content);

  Builder& builder_;
  Outside outside_;
  std::unordered_map<const c10::StorageImpl*, Content> contents_;
};

// The tensor itself where it fills its storage without gaps; else all of its storage, flat.
at::Tensor standing_for_storage(const at::Tensor& tensor);

}  // namespace tessera
