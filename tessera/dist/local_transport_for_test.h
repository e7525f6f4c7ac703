// Instances that are threads of one process: messages lie in queues until somebody takes them.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/dist/transport.h"

namespace tessera::dist {

class LocalNetwork {
 public:
  explicit LocalNetwork(int size) : boxes_(static_cast<size_t>(size)) {}

  int size() const { return static_cast<int>(boxes_.size()); }
  // Nothing that this instance sends arrives any more, and it takes nothing.
  void cut(int instance) { boxes_[static_cast<size_t>(instance)].is_cut = true; }

  // Whoever sends to this instance finds that it cannot.
  void lose(int instance) { lost_peer_ = instance; }
  // The next one who sends has no memory for it.
  void use_up_memory() { is_out_of_memory_ = true; }

  std::unique_ptr<Transport> transport(int rank) { return std::make_unique<Local>(*this, rank); }

 private:
  struct Box {
    std::mutex mutex;
    std::deque<Message> messages;
    std::atomic<bool> is_cut = false;
  };

  class Local : public Transport {
   public:
    Local(LocalNetwork& network, int rank) : network_(network), rank_(rank) {}

    int rank() const override { return rank_; }
    int size() const override { return network_.size(); }
    size_t sending() override { return 0; }
    const std::optional<Lost>& lost() const override { return lost_; }
    void close() override {}

    void send(Message message) override {
      if (box(rank_).is_cut) return;
      if (network_.lost_peer_ == message.peer) lost_ = {message.peer, "there is no route"};
      if (lost_) return;
      if (network_.is_out_of_memory_.exchange(false)) throw std::bad_alloc();
      Box& to = box(std::exchange(message.peer, rank_));
      const std::lock_guard lock(to.mutex);
      to.messages.push_back(std::move(message));
    }

    std::optional<Message> receive() override {
      Box& own = box(rank_);
      const std::lock_guard lock(own.mutex);
      if (own.messages.empty() || own.is_cut) return {};
      Message message = std::move(own.messages.front());
      own.messages.pop_front();
      return message;
    }

   private:
    Box& box(int rank) { return network_.boxes_[static_cast<size_t>(rank)]; }

    LocalNetwork& network_;
    const int rank_;
    std::optional<Lost> lost_;
  };

  std::vector<Box> boxes_;
  std::atomic<int> lost_peer_ = -1;
  std::atomic<bool> is_out_of_memory_ = false;
};

}  // namespace tessera::dist
