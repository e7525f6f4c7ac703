#include "tessera/api/data_loader.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "tessera/base/error.h"

namespace tessera {
namespace {

std::multiset<int64_t> epoch_of(const DataLoader& loader) {
  std::multiset<int64_t> seen;
  for (const auto& batch : loader) {
    for (int64_t i = 0; i < batch[0].size(0); ++i) seen.insert(batch[0][i].item<int64_t>());
  }
  return seen;
}

DataLoader loader_of(int64_t process, DataLoaderOptions loading, int64_t processes = 3) {
  Options options;
  options.deviceIterations(2).randomSeed(3);
  options.Distributed().configureProcessId(process, processes);
  return {options, {at::arange(50)}, loading};
}

// spec: 3.2 drop_last, 3.2 common shuffle
TEST(DataLoader, ProcessesShareADataset) {
  for (const bool shuffle : {false, true}) {
    std::vector<DataLoader> loaders;
    for (int64_t i = 0; i < 3; ++i) {
      loaders.push_back(loader_of(i, {.batch_size = 4, .shuffle = shuffle}));
    }
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::multiset<int64_t> all;
      for (const DataLoader& loader : loaders) {
        EXPECT_EQ(loader.size(), 2);
        for (const int64_t sample : epoch_of(loader)) all.insert(sample);
      }
      EXPECT_EQ(all.size(), 48U);
      EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), 48U);
      EXPECT_TRUE(shuffle || *all.rbegin() == 47);
    }
  }
}

// spec: 3.2 keeping the remainder, 3.1 auto_distributed_partitioning
TEST(DataLoader, RemaindersAndWholeDatasets) {
  EXPECT_EQ(epoch_of(loader_of(0, {.batch_size = 4, .drop_last = false})).size(), 17U);
  EXPECT_EQ(epoch_of(loader_of(2, {.batch_size = 4, .drop_last = false})).size(), 16U);
  const DataLoaderOptions whole{.batch_size = 4, .auto_distributed_partitioning = false};
  EXPECT_EQ(epoch_of(loader_of(1, whole)).size(), 48U);
  EXPECT_THROW(loader_of(0, {.batch_size = 10}), Error);
}

}  // namespace
}  // namespace tessera
