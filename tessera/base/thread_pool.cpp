#include "tessera/base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <new>
#include <string>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/pause.h"

namespace tessera {
namespace {

// Long enough to bridge the gap between two kernels, short enough not to starve a busy machine.
constexpr auto spin_time = std::chrono::microseconds(30);
constexpr int spins_between_clock_reads = 64;
// How long the caller waits for begun pieces before it offers its core to who works on them.
constexpr int spins_before_yield = 4096;

constexpr uint64_t one_job = uint64_t{1} << 32;

// How many pieces nobody has taken yet.
constexpr int64_t left_of(uint64_t job) { return static_cast<int64_t>(job % one_job); }

int affinity_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

int cgroup_quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 1 << 20;
  return std::max(1, static_cast<int>(std::ceil(std::strtod(quota.c_str(), nullptr) / period)));
}

// A forked child has none of its parent's threads, and perhaps locks that nobody will ever release.
// So every pool with threads is on record, and a fork makes those of the child anew: at first
// without threads, because most children never use them (the workers of data loaders), and with as
// many as it had once a job needs them.
class PoolRecord {
 public:
  using Renew = void (*)(ThreadPool&);

  // Never destroyed: pools may outlive the statics.
  static PoolRecord& instance() {
    static auto* const record = new PoolRecord;
    return *record;
  }

  void add(ThreadPool& pool, int threads, Renew renew) {
    const std::lock_guard lock(mutex_);
    pools_[&pool] = {threads, renew};
  }

  void remove(ThreadPool& pool) {
    const std::lock_guard lock(mutex_);
    pools_.erase(&pool);
  }

  // How many threads a pool without any should have; 1 unless a fork took them.
  int threads_before_fork(ThreadPool& pool) {
    if (!forked_.load(std::memory_order_relaxed)) return 1;
    const std::lock_guard lock(mutex_);
    const auto entry = pools_.find(&pool);
    return entry == pools_.end() ? 1 : entry->second.threads;
  }

 private:
  struct Entry {
    int threads;
    Renew renew;
  };

  PoolRecord() {
    pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                   [] {
                     for (auto& [pool, entry] : instance().pools_) entry.renew(*pool);
                     instance().forked_.store(true, std::memory_order_relaxed);
                     instance().mutex_.unlock();
                   });
  }

  std::mutex mutex_;
  std::map<ThreadPool*, Entry> pools_;
  std::atomic<bool> forked_{false};
};

}  // namespace

int usable_cpus() { return std::min(affinity_count(), cgroup_quota()); }

ThreadPool::ThreadPool(int threads) : ThreadPool(threads, machine_level()) {}

ThreadPool::ThreadPool(int threads, CpuLevel level) : level_(level) {
  TESSERA_INVARIANT(threads >= 1, "a pool of {} threads", threads);
  if (threads == 1) return;  // made in the middle of kernels, too: nothing is allocated
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { worker_loop(i); });
  PoolRecord::instance().add(*this, threads, [](ThreadPool& pool) {
    // Made over, not destroyed: the old ones belong to threads that are not here.
    new (&pool.workers_) std::vector<std::thread>();
    new (&pool.mutex_) std::mutex();
    new (&pool.wake_) std::condition_variable();
    new (&pool.error_mutex_) std::mutex();
    new (&pool.error_) std::exception_ptr();
    pool.job_ = 0;
    pool.asleep_ = 0;
  });
}

ThreadPool::~ThreadPool() {
  PoolRecord::instance().remove(*this);
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::run_erased(int64_t pieces, Call call, const void* work) {
  if (pieces <= 0) return;
  if (workers_.empty() && pieces > 1) {
    const int threads = PoolRecord::instance().threads_before_fork(*this);
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { worker_loop(i); });
  }
  if (workers_.empty() || pieces == 1) {
    for (int64_t piece = 0; piece < pieces; ++piece) call(work, piece);
    return;
  }
  TESSERA_INVARIANT(pieces < static_cast<int64_t>(one_job), "a job of {} pieces", pieces);
  pieces_ = pieces;
  call_ = call;
  work_ = work;
  done_.store(0, std::memory_order_relaxed);
  const uint64_t number = job_.load(std::memory_order_relaxed) / one_job + 1;
  job_.store(number * one_job + static_cast<uint64_t>(pieces));
  // Both sequentially consistent: either we see who lies down, or they see the job.
  if (asleep_.load() > 0) wake_sleepers();
  take_pieces();
  wait_for_others();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::wake_sleepers() {
  {
    const std::lock_guard lock(mutex_);
    asleep_.store(0, std::memory_order_relaxed);
  }
  wake_.notify_all();
}

// Only for pieces that were begun: nobody can take any more.
void ThreadPool::wait_for_others() {
  for (int spins = 0; done_.load(std::memory_order_acquire) != pieces_; ++spins) {
    // A worker that was descheduled needs this core more than we do.
    if (spins < spins_before_yield) {
      pause_briefly();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::take_pieces() {
  const int64_t finished = finish_pieces();
  if (finished > 0) done_.fetch_add(finished, std::memory_order_release);
}

int64_t ThreadPool::finish_pieces() {
  int64_t finished = 0;
  uint64_t job = job_.load(std::memory_order_acquire);
  while (left_of(job) > 0) {
    if (!job_.compare_exchange_weak(job, job - 1, std::memory_order_acquire)) continue;
    // The job cannot end before this piece has: its description stays.
    finished += run_piece(pieces_ - left_of(job));
    job = job_.load(std::memory_order_acquire);
  }
  return finished;
}

// How many pieces it has settled: one, and after an exception all that nobody has taken.
int64_t ThreadPool::run_piece(int64_t piece) {
  try {
    call_(work_, piece);
    return 1;
  } catch (...) {
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
    return 1 + drop_pieces();
  }
}

int64_t ThreadPool::drop_pieces() {
  uint64_t job = job_.load(std::memory_order_relaxed);
  while (!job_.compare_exchange_weak(job, job / one_job * one_job, std::memory_order_acquire)) {
  }
  return left_of(job);
}

void ThreadPool::worker_loop(int index) {
  while (wait_for_job()) {
    if (PoolObserver* observer = observer_.load(std::memory_order_relaxed)) {
      take_observed(index, *observer);
    } else {
      take_pieces();
    }
  }
}

// Tells before the last piece counts as done: afterwards the observer may be gone.
void ThreadPool::take_observed(int worker, PoolObserver& observer) {
  const auto begin = std::chrono::steady_clock::now();
  const int64_t finished = finish_pieces();
  if (finished == 0) return;
  observer.worked(worker, begin, std::chrono::steady_clock::now());
  done_.fetch_add(finished, std::memory_order_release);
}

// False when the pool ends.
bool ThreadPool::wait_for_job() {
  auto give_up = std::chrono::steady_clock::now() + spin_time;
  for (int spins = 1; left_of(job_.load(std::memory_order_relaxed)) == 0; ++spins) {
    if (stop_.load(std::memory_order_relaxed)) return false;
    pause_briefly();
    if (spins % spins_between_clock_reads != 0 || std::chrono::steady_clock::now() < give_up) {
      continue;
    }
    sleep();
    give_up = std::chrono::steady_clock::now() + spin_time;
  }
  return true;
}

// May return for no reason: who calls it looks again.
void ThreadPool::sleep() {
  std::unique_lock lock(mutex_);
  asleep_.fetch_add(1);
  if (stop_ || left_of(job_.load()) > 0) return;
  wake_.wait(lock);
}

}  // namespace tessera
