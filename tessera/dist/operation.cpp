#include "tessera/dist/operation.h"

#include <algorithm>
#include <utility>

#include "tessera/base/error.h"

namespace tessera::dist {
namespace {

// Between instances all that differs is somebody's mistake, which both sides tell.
template <typename... Args>
void check_alike(bool ok, const std::string& what, int from, fmt::format_string<Args...> text,
                 Args&&... args) {
  check(ok, "in {}, instance {} does something else: {}", what, from,
        fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace

size_t piece_bytes_for(size_t instances, size_t most) {
  constexpr size_t least = size_t{16} << 10, short_chain = 4;
  return std::min(most, std::max(most / instances * short_chain, least));
}

Operation::Operation(OperationKey key, std::string what, std::vector<int> members, int index)
    : key_(key), what_(std::move(what)), members_(std::move(members)) {
  const auto at = std::find(members_.begin(), members_.end(), index);
  TESSERA_INVARIANT(at != members_.end(), "instance {} is no member of '{}'", index, what_);
  place_ = static_cast<size_t>(at - members_.begin());
}

void Operation::wait(const std::function<void()>& poll) {
  const Clock::time_point start = Clock::now();
  std::unique_lock lock(mutex_);
  ++waiting_;
  while (!ended_) {
    changed_.wait_for(lock, std::chrono::milliseconds(50));
    if (ended_ || !poll) continue;
    lock.unlock();
    try {
      poll();
    } catch (...) {
      lock.lock();
      --waiting_;
      throw;
    }
    lock.lock();
  }
  --waiting_;
  if (waited_) *waited_ += std::chrono::nanoseconds(Clock::now() - start).count();
  if (error_) std::rethrow_exception(error_);
}

bool Operation::is_awaited() const {
  const std::lock_guard lock(mutex_);
  return waiting_ > 0;
}

void Operation::end(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  error_ = std::move(error);
  changed_.notify_all();
}

ChainReduction::ChainReduction(OperationKey key, std::string what, std::vector<int> members,
                               int index, Content content, size_t piece_bytes)
    : Operation(key, std::move(what), std::move(members), index), content_(std::move(content)) {
  for (const Summand& summand : content_.replicas[0]) total_ += summand.count;
  piece_ = std::max<size_t>(piece_bytes / size_of(content_.dtype), 1);
  pieces_ = std::max<size_t>((total_ + piece_ - 1) / piece_, 1);
}

void ChainReduction::advance(Outbox& outbox) {
  if (!is_first()) return;
  while (pieces_begun_ < pieces_ && outbox.has_room()) {
    const size_t begin = pieces_begun_ * piece_, count = std::min(piece_, total_ - begin);
    const Header header{.word = Word::up,
                        .key = key(),
                        .total = total_,
                        .offset = begin,
                        .stamp = content_.stamp,
                        .dtype = content_.dtype,
                        .reduction = content_.reduction};
    Message message = make_message(member(0), header, count * size_of(content_.dtype));
    std::byte* to = payload_of(message).data();
    for_range(0, begin, count, [&](const Summand& summand, size_t at, size_t size) {
      std::memcpy(to, summand.values + at, size);
      to += size;
    });
    ++pieces_begun_;
    pass_up(std::move(message), header, outbox);
  }
}

void ChainReduction::take(Message message, Outbox& outbox) {
  const Header header = header_of(message);
  check_header(header, message.peer);
  const size_t count = std::min(piece_, total_ - header.offset);
  check_alike(payload_of(message).size() == count * size_of(content_.dtype), what(), message.peer,
              "{} bytes came for {} elements", payload_of(message).size(), count);
  if (header.word == Word::up) {
    pass_up(std::move(message), header, outbox);
  } else {
    pass_down(std::move(message), header, outbox);
  }
}

void ChainReduction::check_header(const Header& header, int from) const {
  check_alike(header.word == Word::up || header.word == Word::down, what(), from,
              "it gathers what all say, and this one adds up");
  check_alike(header.total == total_, what(), from, "it adds up {} numbers, this one {}",
              header.total, total_);
  check_alike(header.dtype == content_.dtype, what(), from, "it has {}, this one {}",
              name_of(header.dtype), name_of(content_.dtype));
  check_alike(header.reduction == content_.reduction, what(), from,
              "it does not make the same of them (sum, average, least, greatest, product)");
  check_alike(header.offset % piece_ == 0 && (header.offset < total_ || header.offset == 0), what(),
              from, "there is no element {}", header.offset);
  const StepStamp& stamp = content_.stamp;
  check_alike(header.stamp.iterations == stamp.iterations, what(), from,
              "it runs {} device iterations, this one {}", header.stamp.iterations,
              stamp.iterations);
  check_alike(header.stamp.numbers == stamp.numbers, what(), from,
              "its optimiser has other numbers (a learning rate, for example); set them alike on "
              "all instances");
  check_alike(header.stamp.weights == stamp.weights, what(), from,
              "weights were written to its program {} times, to this one's {} times; do so on all "
              "instances or on none",
              header.stamp.weights, stamp.weights);
}

// Calls use(summand, offset, size), in bytes, for the pieces of a replica's summands that have the
// elements [begin, begin + count).
template <typename Use>
void ChainReduction::for_range(size_t replica, size_t begin, size_t count, const Use& use) const {
  const size_t size = size_of(content_.dtype);
  size_t before = 0;
  for (const Summand& summand : content_.replicas[replica]) {
    const size_t first = std::max(begin, before);
    const size_t last = std::min(begin + count, before + summand.count);
    if (first < last) use(summand, (first - before) * size, (last - first) * size);
    before += summand.count;
  }
}

void ChainReduction::pass_up(Message message, Header header, Outbox& outbox) {
  const std::span<std::byte> values = payload_of(message);
  const size_t size = size_of(content_.dtype), count = values.size() / size;
  for (size_t r = is_first() ? 1 : 0; r < content_.replicas.size(); ++r) {
    std::byte* to = values.data();
    for_range(r, header.offset, count, [&](const Summand& summand, size_t at, size_t bytes) {
      combine(content_.reduction, content_.dtype, to, summand.values + at, bytes / size);
      to += bytes;
    });
  }
  if (is_last()) {
    header.word = Word::down;
    return pass_down(std::move(message), header, outbox);
  }
  message.peer = member(place() + 1);
  outbox.send(std::move(message));
}

void ChainReduction::pass_down(Message message, Header header, Outbox& outbox) {
  const std::span<const std::byte> values = payload_of(message);
  const size_t count = values.size() / size_of(content_.dtype);
  for (size_t r = 0; r < content_.replicas.size(); ++r) {
    const std::byte* from = values.data();
    for_range(r, header.offset, count, [&](const Summand& summand, size_t at, size_t bytes) {
      std::memcpy(summand.sums + at, from, bytes);
      from += bytes;
    });
  }
  ++pieces_ended_;
  if (is_first()) return;
  set_header(message, header);
  message.peer = member(place() - 1);
  outbox.send(std::move(message));
}

RingGathering::RingGathering(OperationKey key, std::string what, std::vector<int> members,
                             int index, std::string said, int speaker, size_t piece_bytes)
    : Operation(key, std::move(what), std::move(members), index),
      speaker_(speaker),
      piece_bytes_(piece_bytes),
      parts_(this->members().size()) {
  for (size_t i = 0; i < parts_.size(); ++i) missing_ += i != place() && speaks(i) ? 1 : 0;
  has_said_ = !speaks(place()) || parts_.size() == 1;
  if (speaks(place())) parts_[place()] = std::move(said);
}

void RingGathering::advance(Outbox& outbox) {
  const std::string& said = parts_[place()];
  while (!has_said_ && outbox.has_room()) {
    const size_t size = std::min(piece_bytes_, said.size() - said_bytes_);
    const Header header{.word = Word::part,
                        .key = key(),
                        .total = said.size(),
                        .offset = said_bytes_,
                        .origin = static_cast<int32_t>(place())};
    outbox.send(make_message(member(next_place()), header,
                             std::string_view(said).substr(said_bytes_, size)));
    said_bytes_ += size;
    has_said_ = said_bytes_ == said.size();
  }
}

void RingGathering::take(Message message, Outbox& outbox) {
  const Header header = header_of(message);
  const auto origin = static_cast<size_t>(header.origin);
  check_alike(header.word == Word::part, what(), message.peer,
              "it adds up, and this one gathers what all say");
  check_alike(origin < parts_.size() && origin != place() && speaks(origin), what(), message.peer,
              "it lets another instance speak");
  std::string& part = parts_[origin];
  check_alike(header.offset == part.size(), what(), message.peer, "a piece is missing");
  part.append(text_of(message));
  check_alike(part.size() <= header.total, what(), message.peer, "more came than was to come");
  if (part.size() == header.total) --missing_;
  if (next_place() == origin) return;
  message.peer = member(next_place());
  outbox.send(std::move(message));
}

}  // namespace tessera::dist
