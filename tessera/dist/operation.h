// What the members of a group of instances do together: an operation. Each member begins it, the
// messages of the others carry it on, and it ends. Everything but waiting for it is done by the one
// thread that speaks with the others.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/base/instances.h"
#include "tessera/dist/wire.h"

namespace tessera::dist {

using Clock = std::chrono::steady_clock;

// What is sent at once of something large, in a chain or ring of so many instances; `most` where it
// is short. A piece must pass all links before the last instance can begin: long ones have smaller
// ones.
inline constexpr size_t most_piece_bytes = size_t{256} << 10;
size_t piece_bytes_for(size_t instances, size_t most = most_piece_bytes);

// Where an operation puts what it has to say.
class Outbox {
 public:
  virtual ~Outbox() = default;
  virtual void send(Message message) = 0;
  // Whether those before have gone far enough that more is of use.
  virtual bool has_room() = 0;
};

class Operation : public Pending {
 public:
  // `members` are instances in ascending order, `index` one of them; `what` is for messages.
  Operation(OperationKey key, std::string what, std::vector<int> members, int index);

  const OperationKey& key() const { return key_; }
  const std::string& what() const { return what_; }
  const std::vector<int>& members() const { return members_; }

  // Sends what can be sent without having heard from others, as long as there is room.
  virtual void advance(Outbox& outbox) = 0;
  // A message of this operation. Error where it is none that this member expects.
  virtual void take(Message message, Outbox& outbox) = 0;
  virtual bool has_ended() const = 0;

  void wait(const std::function<void()>& poll) override;
  // Where the time is added up that is spent in wait().
  void count_waiting(std::atomic<int64_t>* nanoseconds) { waited_ = nanoseconds; }
  bool is_awaited() const;
  void end(std::exception_ptr error = nullptr);

  Clock::time_point last_progress = Clock::now();  // since it was begun, or something came

 protected:
  size_t place() const { return place_; }
  size_t next_place() const { return (place_ + 1) % members_.size(); }
  int member(size_t place) const { return members_[place]; }
  bool is_first() const { return place_ == 0; }
  bool is_last() const { return place_ + 1 == members_.size(); }

 private:
  const OperationKey key_;
  const std::string what_;
  const std::vector<int> members_;
  size_t place_ = 0;  // of this instance among them
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  int waiting_ = 0;
  std::exception_ptr error_;
  std::atomic<int64_t>* waited_ = nullptr;
};

// Numbers made one over all members, in their order: values go up the chain of members, each adds
// its own, and what the last has made goes down it again. In pieces, so that all links work at
// once.
class ChainReduction : public Operation {
 public:
  struct Content {
    Reduction reduction = Reduction::sum;
    DType dtype = DType::f32;
    std::vector<std::vector<Summand>> replicas = {};  // of this member, in their order
    StepStamp stamp = {};
  };

  ChainReduction(OperationKey key, std::string what, std::vector<int> members, int index,
                 Content content, size_t piece_bytes);

  void advance(Outbox& outbox) override;
  void take(Message message, Outbox& outbox) override;
  bool has_ended() const override { return pieces_ended_ == pieces_; }

 private:
  void check_header(const Header& header, int from) const;
  void pass_up(Message message, Header header, Outbox& outbox);
  void pass_down(Message message, Header header, Outbox& outbox);
  template <typename Use>
  void for_range(size_t replica, size_t begin, size_t count, const Use& use) const;

  const Content content_;
  size_t total_ = 0, piece_ = 0;  // elements
  size_t pieces_ = 0, pieces_begun_ = 0, pieces_ended_ = 0;
};

// What some members say, everywhere: it goes round the ring of members.
class RingGathering : public Operation {
 public:
  // `said` by each member where `speaker` is negative, else by the one of that place.
  RingGathering(OperationKey key, std::string what, std::vector<int> members, int index,
                std::string said, int speaker, size_t piece_bytes);

  void advance(Outbox& outbox) override;
  void take(Message message, Outbox& outbox) override;
  bool has_ended() const override { return missing_ == 0 && has_said_; }

  // By place; empty for those who do not speak. After its end.
  std::vector<std::string>& parts() { return parts_; }

 private:
  bool speaks(size_t place) const { return speaker_ < 0 || static_cast<size_t>(speaker_) == place; }

  const int speaker_;
  const size_t piece_bytes_;
  std::vector<std::string> parts_;
  size_t missing_ = 0;     // parts of others that are not whole
  size_t said_bytes_ = 0;  // of our own part, as far as it was sent
  bool has_said_ = false;
};

}  // namespace tessera::dist
