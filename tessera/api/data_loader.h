// Batches for a wrapped model: one element holds everything one call consumes, micro-batch by
// micro-batch along dimension 0.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/api/options/options.h"
#include "tessera/api/partition.h"

namespace tessera {

// Samples that one call consumes: batch size x device iterations x replicas x accumulation.
int64_t combined_batch_size(const Options& options, int64_t batch_size);

// How many combined batches `samples` give. A remainder is dropped, or one short batch more.
int64_t batch_count(int64_t samples, int64_t combined_batch_size, bool drop_last);

struct DataLoaderOptions {
  int64_t batch_size = 1;
  // Anew in every epoch, with PyTorch's random numbers; where several processes share the dataset,
  // with those of the options' seed, which they have in common.
  bool shuffle = false;
  bool drop_last = true;
  bool auto_distributed_partitioning = true;
};

// Over tensors with one sample per index of dimension 0. Where the options say that this is one of
// several processes, over its part of them.
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
    at::Tensor order_;  // undefined: the samples as they come
    int64_t first_ = 0;
    int64_t batch_ = 0;
  };
  Iterator begin() const;  // a new epoch
  Iterator end() const;

 private:
  // What all processes shuffle alike; copies of the loader go on with the same epochs.
  struct Common {
    CommonShuffle shuffle;
    int64_t epoch = 0;
  };

  std::vector<at::Tensor> tensors_;
  DataLoaderOptions loading_;
  int64_t combined_;
  int64_t samples_;
  Partition part_;
  std::shared_ptr<Common> common_;
};

}  // namespace tessera
