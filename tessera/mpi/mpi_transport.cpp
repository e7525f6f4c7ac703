// Messages by MPI. A library of its own: whoever opens it needs MPI, and nobody else does. All
// calls come from the thread that opened it; other parts of the program may use MPI as well. By
// itself MPI ends the process where something fails, without a word of ours; here it only says so.
#include <mpi.h>

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "tessera/dist/transport.h"

namespace tessera::dist {
namespace {

constexpr int tag = 1;

class MpiTransport : public Transport {
 public:
  explicit MpiTransport(bool owns) : owns_(owns) {
    MPI_Comm_dup(MPI_COMM_WORLD, &world_);
    MPI_Comm_rank(world_, &rank_);
    MPI_Comm_size(world_, &size_);
    MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void send(Message message) override {
    Transfer& transfer = sending_.emplace_back(Transfer{std::move(message), MPI_REQUEST_NULL});
    note(MPI_Isend(transfer.message.data.get(), static_cast<int>(transfer.message.size), MPI_BYTE,
                   transfer.message.peer, tag, world_, &transfer.request),
         transfer.message.peer);
  }

  std::optional<Message> receive() override {
    begin_receiving();
    // In the order in which they were sent, though a later one may be here before.
    if (receiving_.empty() || !is_done(receiving_.front())) return {};
    Message message = std::move(receiving_.front().message);
    receiving_.pop_front();
    return message;
  }

  size_t sending() override {
    while (!sending_.empty() && is_done(sending_.front())) sending_.pop_front();
    return sending_.size();
  }

  const std::optional<Lost>& lost() const override { return lost_; }

  void close() override {
    MPI_Comm_free(&world_);
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (owns_ && !finalized) MPI_Finalize();
  }

 private:
  struct Transfer {
    Message message;
    MPI_Request request;
  };

  void note(int result, int peer) {
    if (result == MPI_SUCCESS || lost_) return;
    std::array<char, MPI_MAX_ERROR_STRING> why{};
    int size = 0;
    MPI_Error_string(result, why.data(), &size);
    lost_ = {peer, why.data()};
  }

  bool is_done(Transfer& transfer) {
    int done = 0;
    const int result = MPI_Test(&transfer.request, &done, MPI_STATUS_IGNORE);
    note(result, transfer.message.peer);
    return done != 0 || result != MPI_SUCCESS;
  }

  void begin_receiving() {
    int arrived = 0;
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status;
    const int result = MPI_Improbe(MPI_ANY_SOURCE, tag, world_, &arrived, &handle, &status);
    if (result != MPI_SUCCESS || !arrived) return;
    int size = 0;
    MPI_Get_count(&status, MPI_BYTE, &size);
    Message message{status.MPI_SOURCE, static_cast<size_t>(size),
                    std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(size))};
    Transfer& transfer = receiving_.emplace_back(Transfer{std::move(message), MPI_REQUEST_NULL});
    note(MPI_Imrecv(transfer.message.data.get(), size, MPI_BYTE, &handle, &transfer.request),
         transfer.message.peer);
  }

  const bool owns_;  // MPI was not there before
  MPI_Comm world_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  std::deque<Transfer> sending_, receiving_;
  std::optional<Lost> lost_;
};

Transport* open(uint32_t version, std::string* why) {
  if (version != transport_version) {
    *why = "it belongs to another build of Tessera";
    return nullptr;
  }
  int initialized = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  if (initialized) {
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE) {
      *why =
          "another part of the program has begun MPI without leave for several threads "
          "(MPI_THREAD_MULTIPLE); call popdist.init() before it";
      return nullptr;
    }
    return new MpiTransport(false);
  }
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS) {
    *why = "MPI could not begin";
    return nullptr;
  }
  return new MpiTransport(true);
}

}  // namespace
}  // namespace tessera::dist

extern "C" __attribute__((visibility("default"))) tessera::dist::Transport* tessera_open_mpi(
    uint32_t version, std::string* why) {
  return tessera::dist::open(version, why);
}
