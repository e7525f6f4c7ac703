#include "tessera/base/thread_group.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tessera/base/error.h"

namespace tessera {

// Between its two meetings a collective cannot fail: whoever came to the first comes to the second,
// and memory that was shown stays until then.
class ThreadGroup::Member : public Communicator {
 public:
  Member(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_.size(); }
  void barrier() override { group_.rendezvous_.arrive(); }

  void all_reduce(std::span<const float> values, std::span<float> result) override {
    TESSERA_INVARIANT(values.size() == result.size(), "{} values, {} sums", values.size(),
                      result.size());
    values_ = values;
    result_ = result;
    group_.rendezvous_.arrive();
    sum_own_part();
    group_.rendezvous_.arrive_surely();
  }

  void broadcast(std::span<std::byte> values, int root) override {
    bytes_ = values;
    group_.rendezvous_.arrive();
    const Member& from = *group_.members_[static_cast<size_t>(root)];
    if (root != rank_ && !values.empty()) {
      std::memcpy(values.data(), from.bytes_.data(), values.size());
    }
    group_.rendezvous_.arrive_surely();
  }

 private:
  // Each rank adds up a part for everybody. Nobody else reads or writes that part, so that values
  // and sums may be the same memory.
  void sum_own_part() const {
    const auto& members = group_.members_;
    const size_t part = (values_.size() + members.size() - 1) / members.size();
    const size_t begin = std::min(part * static_cast<size_t>(rank_), values_.size());
    const size_t end = std::min(begin + part, values_.size());
    std::array<float, 1024> sums{};
    for (size_t at = begin; at < end; at += sums.size()) {
      const size_t count = std::min(sums.size(), end - at);
      std::copy_n(members[0]->values_.data() + at, count, sums.data());
      for (size_t r = 1; r < members.size(); ++r) {
        const float* more = members[r]->values_.data() + at;
        for (size_t i = 0; i < count; ++i) sums[i] += more[i];
      }
      for (const auto& member : members)
        std::copy_n(sums.data(), count, member->result_.data() + at);
    }
  }

  ThreadGroup& group_;
  const int rank_;
  // What this rank shows the others, from one meeting to the next.
  std::span<const float> values_;
  std::span<float> result_;
  std::span<std::byte> bytes_;
};

ThreadGroup::ThreadGroup(int size) : rendezvous_(size) {
  check(size >= 1, ErrorKind::value, "there must be at least one replica, not {}", size);
  for (int rank = 0; rank < size; ++rank) {
    members_.push_back(std::make_unique<Member>(*this, rank));
  }
}

ThreadGroup::~ThreadGroup() = default;

Communicator& ThreadGroup::member(int rank) { return *members_[static_cast<size_t>(rank)]; }

}  // namespace tessera
