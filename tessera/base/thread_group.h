// Communicators for replicas that are threads of one process and read each other's memory. Where
// the process is one of several instances, they add up with the replicas of the others.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "tessera/base/communicator.h"
#include "tessera/base/instances.h"
#include "tessera/base/rendezvous.h"

namespace tessera {

// The instances of which this process is one, and what they call the program; null for none.
struct InstancesOfProgram {
  Instances* instances = nullptr;
  uint64_t program = 0;
  bool overlap = true;  // additions begin as soon as they can
};

class ThreadGroup {
 public:
  explicit ThreadGroup(int size, InstancesOfProgram joined = {});
  ~ThreadGroup();
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  int size() const { return static_cast<int>(members_.size()); }
  // For the one thread that is this rank of this process.
  Communicator& member(int local_rank);

  // Of the steps from now on: what other instances compare, and whom rank 0 asks while it waits.
  void begin_steps(const StepStamp& stamp, std::function<void()> poll);

  // A rank that failed outside of collectives lets the others go: theirs throw Aborted.
  void abort() { rendezvous_.abort(); }
  bool is_aborted() const { return rendezvous_.is_aborted(); }
  // After all have left.
  void reset();

 private:
  class Member;

  // An addition in which the replicas of this process come together before it goes to others.
  struct Joint {
    std::vector<std::vector<Summand>> replicas;
    size_t came = 0, left = 0;
    std::shared_ptr<Pending> pending;  // null until all have come
  };
  using JointKey = std::pair<size_t, uint64_t>;  // its number, and how often it has been done

  void join(const JointKey& key, int local_rank, const Addition& addition);
  void leave(const JointKey& key, int local_rank);
  uint64_t name_of(const JointKey& key) const;

  const InstancesOfProgram joined_;
  Rendezvous rendezvous_;
  std::vector<std::unique_ptr<Member>> members_;
  std::mutex mutex_;
  std::condition_variable all_came_;
  std::map<JointKey, Joint> joints_;
  StepStamp stamp_;
  std::function<void()> poll_;
};

}  // namespace tessera
