// Communicators for replicas that are threads of one process and read each other's memory.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tessera/base/communicator.h"
#include "tessera/base/rendezvous.h"

namespace tessera {

class ThreadGroup {
 public:
  explicit ThreadGroup(int size);
  ~ThreadGroup();
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  int size() const { return static_cast<int>(members_.size()); }
  // For the one thread that is this rank.
  Communicator& member(int rank);

  // A rank that failed outside of collectives lets the others go: theirs throw Aborted.
  void abort() { rendezvous_.abort(); }
  bool is_aborted() const { return rendezvous_.is_aborted(); }
  // After all have left.
  void reset() { rendezvous_.reset(); }

 private:
  class Member;

  Rendezvous rendezvous_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace tessera
