// Where a fixed number of threads wait for each other, again and again. Who cannot come any more
// aborts it, so that nobody waits for ever.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace tessera {

class Rendezvous {
 public:
  explicit Rendezvous(int size) : size_(size) {}

  // Returns when all have arrived. Aborted where one of them never will, or has aborted before.
  void arrive();

  // The same for those who know that all others are on their way here: abort() waits, too.
  void arrive_surely();

  // Whoever waits, and whoever arrives until reset(), leaves with Aborted.
  void abort();
  bool is_aborted() const;

  // Makes it as new. Nobody may be waiting.
  void reset();

 private:
  void wait(std::unique_lock<std::mutex>& lock, bool for_sure);

  const int size_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  uint64_t round_ = 0;
  bool aborted_ = false;
};

}  // namespace tessera
