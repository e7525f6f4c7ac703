// Threads that take pieces of one job at a time. A job is cut into pieces by its shape alone, never
// by the number of threads, so that results have the same bits for any number of them.
//
// A worker that has nothing to do spins for a moment, then sleeps. The caller takes pieces like
// everybody else and waits only for pieces that somebody has begun: a worker that comes late finds
// nothing left and costs nothing.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "tessera/base/cpu_level.h"
#include "tessera/base/divided_up.h"

namespace tessera {

// What affinity and the cgroup's quota leave us.
int usable_cpus();

// Told by each worker when it has worked on a job, from its own thread.
class PoolObserver {
 public:
  virtual ~PoolObserver() = default;
  // Workers are counted from 1; the thread that calls run() is not told about.
  virtual void worked(int worker, std::chrono::steady_clock::time_point begin,
                      std::chrono::steady_clock::time_point end) = 0;
};

class ThreadPool {
 public:
  // What it runs may use instructions up to `level`; the machine's where none is given.
  explicit ThreadPool(int threads);
  ThreadPool(int threads, CpuLevel level);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }
  CpuLevel level() const { return level_; }

  // Between two jobs; null for none.
  void set_observer(PoolObserver* observer) { observer_ = observer; }

  // Calls work(piece) for every piece in [0, pieces), in any order, on any thread, and returns when
  // all are done. The first exception is rethrown here. Not reentrant.
  template <typename Work>
  void run(int64_t pieces, const Work& work) {
    run_erased(
        pieces, [](const void* self, int64_t piece) { (*static_cast<const Work*>(self))(piece); },
        &work);
  }

  // Cuts [0, count) into ranges of `grain` and calls work(begin, end) for each.
  template <typename Work>
  void run_ranges(int64_t count, int64_t grain, const Work& work) {
    if (count <= grain) {
      if (count > 0) work(int64_t{0}, count);
      return;
    }
    run(divided_up(count, grain), [&](int64_t piece) {
      const int64_t begin = piece * grain;
      work(begin, begin + grain < count ? begin + grain : count);
    });
  }

 private:
  using Call = void (*)(const void*, int64_t);

  void run_erased(int64_t pieces, Call call, const void* work);
  void take_pieces();
  int64_t finish_pieces();
  void take_observed(int worker, PoolObserver& observer);
  int64_t run_piece(int64_t piece);
  int64_t drop_pieces();
  void wake_sleepers();
  void wait_for_others();
  void worker_loop(int index);
  bool wait_for_job();
  void sleep();

  std::vector<std::thread> workers_;
  // Written by the caller while no piece is being worked on; read by who has taken a piece.
  int64_t pieces_ = 0;
  Call call_ = nullptr;
  const void* work_ = nullptr;
  std::atomic<PoolObserver*> observer_{nullptr};
  // The job's number in the upper half, how many of its pieces nobody has taken yet in the lower.
  // In one word, so that a piece is never taken of another job than the one that was looked at.
  alignas(64) std::atomic<uint64_t> job_{0};
  alignas(64) std::atomic<int64_t> done_{0};  // pieces of this job
  alignas(64) std::atomic<bool> stop_{false};
  std::atomic<int> asleep_{0};  // workers that were not notified since they lay down
  std::mutex mutex_;            // of sleeping
  std::condition_variable wake_;
  std::mutex error_mutex_;
  std::exception_ptr error_;
  const CpuLevel level_;
};

}  // namespace tessera
