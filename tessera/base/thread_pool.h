// Threads that take pieces of one job at a time. A job is cut into pieces by its shape alone, never
// by the number of threads, so that results have the same bits for any number of them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace tessera {

// How many threads to use unless the user says otherwise: TESSERA_NUM_THREADS, else what affinity
// and the cgroup's quota leave us.
int default_thread_count();

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

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
    run((count + grain - 1) / grain, [&](int64_t piece) {
      const int64_t begin = piece * grain;
      work(begin, begin + grain < count ? begin + grain : count);
    });
  }

 private:
  using Call = void (*)(const void*, int64_t);

  void run_erased(int64_t pieces, Call call, const void* work);
  void take_pieces();
  void worker_loop();

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<uint64_t> generation_{0};
  std::atomic<int64_t> next_piece_{0};
  std::atomic<int> busy_{0};
  std::atomic<bool> stop_{false};
  int64_t pieces_ = 0;
  Call call_ = nullptr;
  const void* work_ = nullptr;
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace tessera
