// The instances of which this process is one: how it finds them, and what they do together outside
// of training steps. A launcher (poprun, mpirun, Slurm's srun) starts them; MPI connects them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/api/options/options.h"
#include "tessera/base/reduction.h"
#include "tessera/dist/link.h"

namespace tessera {

// Whether a launcher of MPI programs started this process.
bool was_launched_by_mpi();

// Joins the others, where that has not happened yet, as instance `index` of `count`. Error where
// nobody started others, where MPI knows another number of them, or where it is not installed.
// TESSERA_INSTANCE_TIMEOUT says how many seconds one waits for another.
std::shared_ptr<dist::Link> join_instances(int64_t index, int64_t count);

// The link to those that were joined; null where there is only this process.
std::shared_ptr<dist::Link> joined_instances();

// Those that train together by these options; none for one process.
std::shared_ptr<dist::Link> instances_of(const Options& options);

// Whether gradients are added up while others are still computed: TESSERA_OVERLAP, 1 or 0.
bool overlaps_additions();

// What scripts do together, among all instances or those that OnlyInstances names. Each instance
// calls it with tensors of the same type and shape; gathered ones may differ in dimension 0. Alone,
// an instance does it with itself. `what` is its name in messages.
at::Tensor reduce_over_instances(const at::Tensor& tensor, Reduction reduction, bool average,
                                 const std::string& what, const std::function<void()>& poll = {});
at::Tensor gather_from_instances(const at::Tensor& tensor, const std::string& what,
                                 const std::function<void()>& poll = {});
at::Tensor broadcast_to_instances(const at::Tensor& tensor, int64_t root, const std::string& what,
                                  const std::function<void()>& poll = {});
std::vector<std::string> gather_texts(std::string text, const std::string& what,
                                      const std::function<void()>& poll = {});
void meet_instances(const std::string& what, const std::function<void()>& poll = {});

// The program of this instance ends because of that: the others end with an Error that says so.
void fail_instances(const std::string& why);

// While it lives, what this thread does together is among these instances alone, of which it is
// one.
class OnlyInstances {
 public:
  explicit OnlyInstances(std::vector<int> members);
  ~OnlyInstances();
  OnlyInstances(const OnlyInstances&) = delete;
  OnlyInstances& operator=(const OnlyInstances&) = delete;

 private:
  std::vector<int> before_;
};

}  // namespace tessera
