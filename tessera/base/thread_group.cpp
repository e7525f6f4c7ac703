#include "tessera/base/thread_group.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/reduction.h"

namespace tessera {

// Between its two meetings a collective cannot fail: whoever came to the first comes to the second,
// and memory that was shown stays until then.
class ThreadGroup::Member : public Communicator {
 public:
  Member(ThreadGroup& group, int local_rank) : group_(group), local_rank_(local_rank) {}

  int local_rank() const override { return local_rank_; }
  int rank() const override { return first_rank() + local_rank_; }
  int size() const override {
    const Instances* instances = group_.joined_.instances;
    return group_.size() * (instances ? instances->count() : 1);
  }
  void barrier() override { group_.rendezvous_.arrive(); }

  void all_reduce(size_t number, const Addition& addition) override {
    if (group_.joined_.instances) {
      begin_all_reduce(number, addition);
      const JointKey key = key_of(number);
      ++rounds_[number];
      return group_.leave(key, local_rank_);
    }
    addition_ = addition;
    group_.rendezvous_.arrive();
    sum_own_part();
    group_.rendezvous_.arrive_surely();
  }

  bool adds_up_early() const override { return group_.joined_.instances && group_.joined_.overlap; }

  void begin_all_reduce(size_t number, const Addition& addition) override {
    uint64_t& begun = begun_[number];
    if (begun > rounds_[number]) return;
    group_.join(key_of(number), local_rank_, addition);
    ++begun;
  }

  // After a run that was stopped: what was begun has not been done.
  void reset() {
    for (auto& [number, begun] : begun_) {
      begun = std::max(begun, rounds_[number]);
      rounds_[number] = begun;
    }
  }

 private:
  int first_rank() const {
    const Instances* instances = group_.joined_.instances;
    return instances ? instances->index() * group_.size() : 0;
  }
  JointKey key_of(size_t number) { return {number, rounds_[number]}; }

  // Each rank adds up a part for everybody. Nobody else reads or writes that part, so that values
  // and sums may be the same memory.
  void sum_own_part() const {
    size_t total = 0;
    for (const Summand& summand : addition_.summands) total += summand.count;
    const auto ranks = static_cast<size_t>(group_.size()), own = static_cast<size_t>(local_rank_);
    const size_t part = (total + ranks - 1) / ranks;
    const size_t begin = std::min(part * own, total), end = std::min(begin + part, total);
    size_t before = 0;  // elements of earlier summands
    for (size_t i = 0; i < addition_.summands.size() && before < end; ++i) {
      const size_t count = addition_.summands[i].count;
      const size_t first = std::max(begin, before), last = std::min(end, before + count);
      if (first < last) sum(i, first - before, last - before);
      before += count;
    }
  }

  // Elements of the summand `i` of everybody.
  void sum(size_t i, size_t begin, size_t end) const {
    alignas(64) std::array<std::byte, 4096> sums{};
    const size_t size = size_of(addition_.dtype), block = sums.size() / size;
    for (size_t at = begin; at < end; at += block) {
      const size_t count = std::min(block, end - at);
      const auto& members = group_.members_;
      std::memcpy(sums.data(), members[0]->summand(i).values + at * size, count * size);
      for (size_t r = 1; r < members.size(); ++r) {
        combine(Reduction::sum, addition_.dtype, sums.data(),
                members[r]->summand(i).values + at * size, count);
      }
      for (const auto& member : members) {
        std::memcpy(member->summand(i).sums + at * size, sums.data(), count * size);
      }
    }
  }
  const Summand& summand(size_t i) const { return addition_.summands[i]; }

  ThreadGroup& group_;
  const int local_rank_;
  Addition addition_;  // what this rank shows the others, from one meeting to the next
  // By the additions' numbers: how often this rank has done, and begun, each of them.
  std::map<size_t, uint64_t> rounds_, begun_;
};

ThreadGroup::ThreadGroup(int size, InstancesOfProgram joined) : joined_(joined), rendezvous_(size) {
  check(size >= 1, ErrorKind::value, "there must be at least one replica, not {}", size);
  for (int rank = 0; rank < size; ++rank) {
    members_.push_back(std::make_unique<Member>(*this, rank));
  }
}

ThreadGroup::~ThreadGroup() {
  if (joined_.instances) joined_.instances->drop(joined_.program);
}

Communicator& ThreadGroup::member(int local_rank) {
  return *members_[static_cast<size_t>(local_rank)];
}

void ThreadGroup::begin_steps(const StepStamp& stamp, std::function<void()> poll) {
  stamp_ = stamp;
  poll_ = std::move(poll);
}

void ThreadGroup::reset() {
  rendezvous_.reset();
  if (!joined_.instances) return;
  joined_.instances->drop(joined_.program);
  joints_.clear();
  for (const auto& member : members_) member->reset();
}

uint64_t ThreadGroup::name_of(const JointKey& key) const { return key.second << 16 | key.first; }

void ThreadGroup::join(const JointKey& key, int local_rank, const Addition& addition) {
  const std::lock_guard lock(mutex_);
  Joint& joint = joints_[key];
  joint.replicas.resize(members_.size());
  joint.replicas[static_cast<size_t>(local_rank)].assign(addition.summands.begin(),
                                                         addition.summands.end());
  if (++joint.came < members_.size()) return;
  joint.pending = joined_.instances->begin({.program = joined_.program,
                                            .number = name_of(key),
                                            .dtype = addition.dtype,
                                            .replicas = joint.replicas,
                                            .stamp = stamp_});
  all_came_.notify_all();
}

// Whoever waits looks now and then whether another replica has failed, and rank 0 whether the user
// wants to go on.
void ThreadGroup::leave(const JointKey& key, int local_rank) {
  const auto look = [&] {
    if (local_rank == 0 && poll_) poll_();
    if (is_aborted()) throw Aborted();
  };
  std::unique_lock lock(mutex_);
  Joint& joint = joints_[key];
  while (!joint.pending) {
    all_came_.wait_for(lock, std::chrono::milliseconds(50));
    if (joint.pending) break;
    lock.unlock();
    look();
    lock.lock();
  }
  const std::shared_ptr<Pending> pending = joint.pending;
  lock.unlock();
  pending->wait(look);
  lock.lock();
  if (++joint.left == members_.size()) joints_.erase(key);
}

}  // namespace tessera
