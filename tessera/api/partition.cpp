#include "tessera/api/partition.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera {

Partition partition(int64_t samples, int64_t step, int64_t process_id, int64_t num_processes,
                    bool drop_last) {
  TESSERA_INVARIANT(step >= 1 && process_id >= 0 && process_id < num_processes,
                    "a part {} of {} in steps of {}", process_id, num_processes, step);
  if (!drop_last) {
    const int64_t each = samples / num_processes;
    const int64_t with_one_more = samples % num_processes;
    return {.first = process_id * each + std::min(process_id, with_one_more),
            .count = each + (process_id < with_one_more ? 1 : 0)};
  }
  const int64_t batches = samples / step / num_processes;
  check(batches > 0,
        "the dataset has {} samples, which is no combined batch of {} for each of {} processes: "
        "use a smaller batch size, or drop_last=False",
        samples, step, num_processes);
  const int64_t each = step * batches;
  return {.first = process_id * each, .count = each, .leftovers = samples % each};
}

int64_t common_shuffle_seed(const Options& options) {
  const auto seed = options.random_seed();
  check(seed.has_value(), ErrorKind::assertion,
        "shuffling a dataset for {} processes needs options.randomSeed(...), the same in all of "
        "them: they must agree on the order to have different parts of it",
        options.Distributed().numProcesses());
  return *seed;
}

CommonShuffle::CommonShuffle(int64_t seed)
    : generator_(at::detail::createCPUGenerator(static_cast<uint64_t>(seed))) {}

at::Tensor CommonShuffle::next(int64_t samples) { return at::randperm(samples, generator_); }

}  // namespace tessera
