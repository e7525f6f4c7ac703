// Batches for a wrapped model: one element holds everything one call consumes, micro-batch by
// micro-batch along dimension 0.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "tessera/api/options/options.h"

namespace tessera {

// Samples that one call consumes: batch size x device iterations x replicas x accumulation.
int64_t combined_batch_size(const Options& options, int64_t batch_size);

// How many combined batches `samples` give. A remainder is dropped, or one short batch more.
int64_t batch_count(int64_t samples, int64_t combined_batch_size, bool drop_last);

struct DataLoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;  // anew in every epoch, with PyTorch's random numbers
  bool drop_last = true;
};

// Over tensors with one sample per index of dimension 0.
class DataLoader {
 public:
  DataLoader(const Options& options, std::vector<at::Tensor> tensors, DataLoaderOptions loading);

  int64_t size() const;  // batches in an epoch
  int64_t combinedBatchSize() const { return combined_; }

  class Iterator {
   public:
    std::vector<at::Tensor> operator*() const;
    Iterator& operator++();
    bool operator!=(const Iterator& other) const { return batch_ != other.batch_; }

   private:
    friend class DataLoader;
    const DataLoader* loader_ = nullptr;
    at::Tensor order_;
    int64_t batch_ = 0;
  };
  Iterator begin() const;  // a new epoch
  Iterator end() const;

 private:
  std::vector<at::Tensor> tensors_;
  DataLoaderOptions loading_;
  int64_t combined_;
  int64_t samples_;
};

}  // namespace tessera
