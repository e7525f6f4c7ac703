#include "tessera/api/data_loader.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tessera/base/divided_up.h"
#include "tessera/base/error.h"

namespace tessera {

int64_t combined_batch_size(const Options& options, int64_t batch_size) {
  check(batch_size >= 1, ErrorKind::value, "batch_size must be at least 1, got {}", batch_size);
  int64_t combined = 0;
  check(!__builtin_mul_overflow(batch_size, options.micro_batches(), &combined), ErrorKind::value,
        "batch_size ({}) x the {} micro-batches of a call are more samples than can be counted",
        batch_size, options.micro_batches());
  return combined;
}

int64_t batch_count(int64_t samples, int64_t combined, bool drop_last) {
  return drop_last ? samples / combined : divided_up(samples, combined);
}

DataLoader::DataLoader(const Options& options, std::vector<at::Tensor> tensors,
                       DataLoaderOptions loading)
    : tensors_(std::move(tensors)),
      loading_(loading),
      combined_(combined_batch_size(options, loading.batch_size)) {
  check(!tensors_.empty() && tensors_[0].dim() > 0, ErrorKind::value,
        "a DataLoader needs tensors with samples along dimension 0");
  samples_ = tensors_[0].size(0);
  for (const at::Tensor& tensor : tensors_) {
    check(tensor.dim() > 0 && tensor.size(0) == samples_, ErrorKind::value,
          "the tensors of a DataLoader must have the same number of samples: {} and {}", samples_,
          tensor.dim() > 0 ? tensor.size(0) : 0);
  }
  part_.count = samples_;
  const DistributedOptions& process = options.Distributed();
  if (loading_.auto_distributed_partitioning && process.numProcesses() > 1) {
    if (loading_.shuffle) {
      const CommonShuffle shuffle(common_shuffle_seed(options));
      common_ = std::make_shared<Common>(Common{shuffle});
    }
    part_ = partition(samples_, combined_, process.processId(), process.numProcesses(),
                      loading_.drop_last);
  }
  options.freeze();
}

int64_t DataLoader::size() const { return batch_count(part_.count, combined_, loading_.drop_last); }

DataLoader::Iterator DataLoader::begin() const {
  Iterator iterator = end();
  iterator.batch_ = 0;
  iterator.first_ = part_.first;
  if (common_) {
    iterator.order_ = common_->shuffle.next(samples_);
    iterator.first_ = part_.first_in(common_->epoch++);
  } else if (loading_.shuffle) {
    iterator.order_ = at::randperm(samples_);
  }
  return iterator;
}

DataLoader::Iterator DataLoader::end() const {
  Iterator iterator;
  iterator.loader_ = this;
  iterator.batch_ = size();
  return iterator;
}

std::vector<at::Tensor> DataLoader::Iterator::operator*() const {
  const int64_t before = batch_ * loader_->combined_;
  const int64_t count = std::min(loader_->combined_, loader_->part_.count - before);
  const int64_t first = first_ + before;
  std::vector<at::Tensor> batch;
  for (const at::Tensor& tensor : loader_->tensors_) {
    batch.push_back(order_.defined() ? tensor.index_select(0, order_.narrow(0, first, count))
                                     : tensor.narrow(0, first, count));
  }
  return batch;
}

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  ++batch_;
  return *this;
}

}  // namespace tessera
