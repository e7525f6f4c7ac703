#include "tessera/base/rendezvous.h"

#include <atomic>

#include "tessera/base/communicator.h"
#include "tessera/base/pause.h"

namespace tessera {
namespace {

// Some microseconds: about as long as it takes to fall asleep and be woken.
constexpr int spins = 400;

}  // namespace

void Rendezvous::arrive() {
  std::unique_lock lock(mutex_);
  if (aborted_) throw Aborted();
  wait(lock, false);
}

void Rendezvous::arrive_surely() {
  std::unique_lock lock(mutex_);
  wait(lock, true);
}

void Rendezvous::wait(std::unique_lock<std::mutex>& lock, bool for_sure) {
  if (++arrived_ == size_) {
    arrived_ = 0;
    std::atomic_ref(round_).store(round_ + 1, std::memory_order_release);
    changed_.notify_all();
    return;
  }
  const uint64_t round = round_;
  lock.unlock();
  for (int i = 0; i < spins; ++i) {
    if (std::atomic_ref(round_).load(std::memory_order_acquire) != round) return;
    pause_briefly();
  }
  lock.lock();
  changed_.wait(lock, [&] { return round_ != round || (aborted_ && !for_sure); });
  if (round_ == round) throw Aborted();
}

void Rendezvous::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  changed_.notify_all();
}

bool Rendezvous::is_aborted() const {
  const std::lock_guard lock(mutex_);
  return aborted_;
}

void Rendezvous::reset() {
  const std::lock_guard lock(mutex_);
  aborted_ = false;
  arrived_ = 0;
}

}  // namespace tessera
