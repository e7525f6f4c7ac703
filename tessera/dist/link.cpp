#include "tessera/dist/link.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/log.h"

namespace tessera::dist {
namespace {

using std::chrono::milliseconds;
using Seconds = std::chrono::duration<double>;

constexpr uint64_t channel_of_all = 1;
constexpr uint64_t first_program_channel = 16;
constexpr uint64_t channel_of_some = uint64_t{1} << 63;
constexpr size_t messages_under_way = 8;
constexpr size_t remembered_ends = 4096;

std::string name_of_machine() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

// For a transport that cannot be closed, since that would wait for the others: messages may still
// be read from its memory, so it stays.
void leave_open(std::unique_ptr<Transport> transport) {
  static std::mutex mutex;
  static auto* const left = new std::vector<std::unique_ptr<Transport>>;
  const std::lock_guard lock(mutex);
  left->push_back(std::move(transport));
}

}  // namespace

// MPI begins when all instances have come, and cannot be told to stop waiting for them. Whoever has
// lost patience leaves it alone, so that this is shared with a thread that may outlive the Link.
struct Link::Opening {
  std::mutex mutex;
  std::condition_variable over;
  std::exception_ptr error;
  bool is_over = false, is_given_up = false;

  // In the thread; false where nobody wants the transport.
  bool open(const std::function<std::unique_ptr<Transport>()>& how, Link& link) {
    std::unique_ptr<Transport> transport;
    std::exception_ptr problem;
    try {
      transport = how();
    } catch (...) {
      problem = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    if (is_given_up) {
      leave_open(std::move(transport));
      return false;
    }
    if (!problem) link.begin_with(std::move(transport));
    error = problem;
    is_over = true;
    over.notify_all();
    return !error;
  }

  bool wait(Seconds patience) {
    std::unique_lock lock(mutex);
    is_given_up = !over.wait_for(lock, patience, [this] { return is_over; });
    return !is_given_up;
  }
};

Link::Link(std::function<std::unique_ptr<Transport>()> open, LinkSettings settings)
    : settings_(settings), process_(getpid()) {
  const auto opening = std::make_shared<Opening>();
  thread_ = std::thread([this, opening, open = std::move(open)] {
    if (opening->open(open, *this)) run();
  });
  if (!opening->wait(settings.patience)) {
    thread_.detach();
    tessera::fail(
        ErrorKind::unrecoverable,
        "after {:.0f} s not all instances have joined this one on {}: one of them is stopped or "
        "has not come so far, or its machine cannot be reached; TESSERA_INSTANCE_TIMEOUT says how "
        "long to wait",
        settings.patience.count(), name_of_machine());
  }
  if (opening->error) {
    thread_.join();
    std::rethrow_exception(opening->error);
  }
  try {
    exchange_hosts();
  } catch (...) {
    close_failed("it could not join the others");
    throw;
  }
}

Link::~Link() {
  if (getpid() != process_) {
    thread_.detach();  // it is the parent's
  } else if (thread_.joinable()) {
    close_failed("it has left");
  }
}

std::string Link::name_of(int instance) const {
  return fmt::format("instance {} on {}", instance, host_of(instance));
}

std::string Link::host_of(int instance) const {
  const std::lock_guard lock(mutex_);
  return hosts_[static_cast<size_t>(instance)];
}

size_t Link::piece_bytes() const {
  return piece_bytes_for(static_cast<size_t>(count_), settings_.piece_bytes);
}

// Whoever has another build may do the same with other bits, and send what this one cannot read.
void Link::exchange_hosts() {
  const auto said = gather("the first meeting of the instances",
                           fmt::format("{}\n{}", name_of_machine(), settings_.build), {});
  {
    const std::lock_guard lock(mutex_);  // the thread may speak of a host already
    for (size_t i = 0; i < said.size(); ++i) hosts_[i] = said[i].substr(0, said[i].find('\n'));
  }
  for (int i = 0; i < count_; ++i) {
    const std::string& text = said[static_cast<size_t>(i)];
    check(text.substr(text.find('\n') + 1) == settings_.build, ErrorKind::runtime,
          "{} runs another build of Tessera than {}: install the same one on all machines",
          name_of(i), name_of(index_));
  }
}

Link::Members Link::all_if_none(const Members& members) const {
  if (!members.empty()) return members;
  Members all(static_cast<size_t>(count_));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

OperationKey Link::next_key(const Members& members) {
  check_process();
  const std::lock_guard lock(mutex_);
  const uint64_t number = group_numbers_[members]++;
  if (members.size() == static_cast<size_t>(count_)) return {channel_of_all, number};
  uint64_t hash = 14695981039346656037U;
  for (const int member : members) hash = (hash ^ static_cast<uint64_t>(member)) * 1099511628211U;
  return {channel_of_some | hash, number};
}

// Before anything is locked: in a fork nobody would unlock it.
void Link::check_process() const {
  check(getpid() == process_, ErrorKind::runtime,
        "this process was forked from instance {} and is no instance itself: it cannot speak with "
        "the others",
        index_);
}

std::shared_ptr<Operation> Link::post(std::shared_ptr<Operation> operation) {
  check_process();
  const std::lock_guard lock(mutex_);
  check(!has_ended_, ErrorKind::runtime, "instance {} has left the others already", index_);
  posted_.push_back(operation);
  posted_something_.notify_all();
  return operation;
}

std::vector<std::string> Link::gather(const Members& members, const std::string& what,
                                      std::string said, const std::function<void()>& poll) {
  const Members group = all_if_none(members);
  const auto gathering = std::make_shared<RingGathering>(next_key(group), what, group, index_,
                                                         std::move(said), -1, piece_bytes());
  post(gathering)->wait(poll);
  return std::move(gathering->parts());
}

void Link::broadcast(const Members& members, const std::string& what, std::span<std::byte> values,
                     int root, const std::function<void()>& poll) {
  const Members group = all_if_none(members);
  const auto at = std::find(group.begin(), group.end(), root);
  check(at != group.end(), ErrorKind::value, "{}: instance {} is not among those that take part",
        what, root);
  const auto place = static_cast<int>(at - group.begin());
  std::string said;
  if (root == index_) said.assign(reinterpret_cast<const char*>(values.data()), values.size());
  const auto gathering = std::make_shared<RingGathering>(next_key(group), what, group, index_,
                                                         std::move(said), place, piece_bytes());
  post(gathering)->wait(poll);
  const std::string& heard = gathering->parts()[static_cast<size_t>(place)];
  check(heard.size() == values.size(), ErrorKind::value,
        "{}: {} has {} bytes to give, and this instance room for {}", what, name_of(root),
        heard.size(), values.size());
  std::copy_n(reinterpret_cast<const std::byte*>(heard.data()), heard.size(), values.begin());
}

void Link::reduce(const Members& members, const std::string& what, Reduction reduction, DType dtype,
                  std::span<std::byte> values, const std::function<void()>& poll) {
  const Members group = all_if_none(members);
  const Summand summand{values.data(), values.data(), values.size() / size_of(dtype)};
  const auto chain = std::make_shared<ChainReduction>(
      next_key(group), what, group, index_,
      ChainReduction::Content{reduction, dtype, {{summand}}, {}}, piece_bytes());
  post(chain);
  try {
    chain->wait(poll);
  } catch (...) {
    drop(chain->key().channel);  // the memory is the caller's again
    throw;
  }
}

void Link::barrier(const Members& members, const std::string& what,
                   const std::function<void()>& poll) {
  reduce(members, what, Reduction::sum, DType::f32, {}, poll);
}

std::vector<std::string> Link::gather(const std::string& what, std::string said,
                                      const std::function<void()>& poll) {
  return gather(Members{}, what, std::move(said), poll);
}

void Link::broadcast(const std::string& what, std::span<std::byte> values, int root,
                     const std::function<void()>& poll) {
  broadcast(Members{}, what, values, root, poll);
}

uint64_t Link::open_program(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const uint64_t program = first_program_channel + program_names_.size();
  program_names_[program] = name;
  return program;
}

std::shared_ptr<Pending> Link::begin(JointAddition addition) {
  std::string what;
  {
    const std::lock_guard lock(mutex_);
    what = fmt::format("update {} of {}", (addition.number >> 16) + 1,
                       program_names_[addition.program]);
  }
  auto chain = std::make_shared<ChainReduction>(
      OperationKey{addition.program, addition.number}, std::move(what), all_if_none({}), index_,
      ChainReduction::Content{Reduction::sum, addition.dtype, std::move(addition.replicas),
                              addition.stamp},
      piece_bytes());
  chain->count_waiting(&waited_nanoseconds_);
  return post(std::move(chain));
}

void Link::drop(uint64_t program) {
  if (getpid() != process_) return;
  std::unique_lock lock(mutex_);
  if (has_ended_) return;
  dropping_.insert(program);
  posted_something_.notify_all();
  dropped_.wait(lock, [&] { return has_ended_ || !dropping_.contains(program); });
}

void Link::fail(const std::string& why) {
  if (getpid() != process_) return;
  const std::lock_guard lock(mutex_);
  if (has_ended_ || !to_tell_.empty()) return;
  to_tell_ = why.empty() ? "for no reason that it knows" : why;
  posted_something_.notify_all();
}

LinkCounters Link::counters() const {
  return {messages_.load(), bytes_.load(), waited_nanoseconds_.load()};
}

void Link::close() {
  if (getpid() != process_ || !thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = Ending::friendly;
    posted_something_.notify_all();
  }
  thread_.join();
}

void Link::close_failed(const std::string& why) {
  if (getpid() != process_ || !thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    if (to_tell_.empty()) to_tell_ = why;
    ending_ = Ending::failed;
    posted_something_.notify_all();
  }
  thread_.join();
}

void Link::begin_with(std::unique_ptr<Transport> transport) {
  transport_ = std::move(transport);
  index_ = transport_->rank();
  count_ = transport_->size();
  hosts_.assign(static_cast<size_t>(count_), "an unknown machine");
  peers_.resize(static_cast<size_t>(count_));
}

// What goes wrong in this thread, for want of memory for example, is told like any other failure.
void Link::run() {
  for (bool goes_on = true; goes_on;) {
    try {
      goes_on = work();
    } catch (const std::exception& error) {
      break_link(fmt::format("it could not speak with the others: {}", error.what()), true);
    }
  }
  const std::lock_guard lock(mutex_);
  has_ended_ = true;
  dropped_.notify_all();
  posted_something_.notify_all();
}

// One round; false when the program has ended, here and elsewhere.
bool Link::work() {
  bool did = take_posted();
  did = take_messages() || did;
  did = advance_all() || did;
  look_at_transport();
  const Clock::time_point now = Clock::now();
  if (now - last_look_ > milliseconds(100)) look_after(now);
  const Ending ending = [this] {
    const std::lock_guard lock(mutex_);
    return ending_;
  }();
  if (ending == Ending::failed) {
    say_farewell();
    return false;
  }
  if (ending == Ending::friendly && !said_goodbye_) say_goodbye();
  if (said_goodbye_ && may_close()) {
    close_transport();
    return false;
  }
  rest(did);
  return true;
}

void Link::look_at_transport() {
  const auto lost = transport_->lost();
  if (!lost || is_broken()) return;
  peers_[static_cast<size_t>(lost->peer)].failed = true;  // it hears nothing of us either
  break_link(fmt::format("{} cannot be reached from {}: {}", name_of(lost->peer), name_of(index_),
                         lost->why),
             true);
}

// What the program wants: operations that begin, memory that is let go, a failure to tell.
bool Link::take_posted() {
  std::unique_lock lock(mutex_);
  const auto posted = std::exchange(posted_, {});
  const auto dropping = dropping_;
  const std::string to_tell = broken_.empty() ? to_tell_ : "";
  lock.unlock();
  for (const std::shared_ptr<Operation>& operation : posted) take_up(operation);
  for (const uint64_t program : dropping) drop_now(program);
  if (!to_tell.empty()) break_link(to_tell, true);
  return !posted.empty();
}

// With what others have sent of it already. Each may find that the link is broken, or break it.
void Link::take_up(const std::shared_ptr<Operation>& operation) {
  if (is_broken()) return operation->end(error_of(why_broken()));
  operation->last_progress = Clock::now();
  operations_[operation->key()] = operation;
  for (Message& message : std::exchange(early_[operation->key()], {})) {
    if (!is_broken()) hand_over(*operation, std::move(message));
  }
  early_.erase(operation->key());
}

void Link::drop_now(uint64_t program) {
  std::erase_if(operations_, [&](const auto& entry) {
    if (entry.first.channel != program) return false;
    entry.second->end(error_of("it was given up"));
    return true;
  });
  const std::lock_guard lock(mutex_);
  dropping_.erase(program);
  dropped_.notify_all();
}

std::exception_ptr Link::error_of(const std::string& why) const {
  return std::make_exception_ptr(Error(ErrorKind::unrecoverable, why));
}

bool Link::take_messages() {
  bool did = false;
  transport_->sending();  // lets go what has been taken
  while (auto message = transport_->receive()) {
    did = true;
    const auto from = static_cast<size_t>(message->peer);
    peers_[from].heard = Clock::now();
    const Header header = message->size >= header_bytes ? header_of(*message) : Header{.magic = 0};
    if (header.magic != Header::right_magic) {
      break_link(fmt::format("{} sends what is no message", name_of(message->peer)), true);
      continue;
    }
    if (header.word != Word::up && header.word != Word::down && header.word != Word::part) {
      take_control(header, *message);
      continue;
    }
    const auto operation = operations_.find(header.key);
    if (operation != operations_.end()) {
      hand_over(*std::shared_ptr(operation->second), std::move(*message));
    } else if (!is_broken()) {
      early_[header.key].push_back(std::move(*message));
    }
  }
  return did;
}

void Link::hand_over(Operation& operation, Message message) {
  try {
    operation.last_progress = Clock::now();
    operation.take(std::move(message), *this);
  } catch (const Error& error) {
    break_link(error.message(), true);
  }
}

bool Link::advance_all() {
  const int64_t before = messages_;
  std::vector<OperationKey> ended;
  for (const auto& [key, operation] : operations_) {
    operation->advance(*this);
    if (operation->has_ended()) ended.push_back(key);
  }
  for (const OperationKey& key : ended) {
    operations_[key]->end();
    operations_.erase(key);
    absences_.erase(key);
    asked_.erase(key);
    ended_.push_back(key);
    if (ended_.size() > remembered_ends) ended_.pop_front();
  }
  return messages_ != before || !ended.empty();
}

void Link::take_control(const Header& header, const Message& message) {
  const int from = message.peer;
  Peer& peer = peers_[static_cast<size_t>(from)];
  switch (header.word) {
    case Word::goodbye:
      peer.gone = true;
      peer.left = Clock::now();
      return;
    case Word::failed:
      peer.gone = peer.failed = true;
      return break_link(fmt::format("{} failed: {}", name_of(from), text_of(message)), false);
    case Word::ask:
      return answer(from, header.key);
    case Word::answer:
      return take_answer(from, header, text_of(message));
    default:
      break_link(fmt::format("{} sends what is no message", name_of(from)), true);
  }
}

std::string Link::why_broken() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}

// From now on nothing can be done together.
void Link::break_link(const std::string& why, bool tell) {
  {
    const std::lock_guard lock(mutex_);
    if (!broken_.empty()) return;
    broken_ = why;
  }
  log(LogLevel::debug, "the instances are no longer together: {}", why);
  for (const auto& [key, operation] : operations_) operation->end(error_of(why));
  operations_.clear();
  early_.clear();
  for (int peer = 0; tell && peer < count_; ++peer) {
    if (peer == index_ || peers_[static_cast<size_t>(peer)].failed) continue;
    send(make_message(peer, {.word = Word::failed}, why));
  }
}

void Link::say_goodbye() {
  said_goodbye_ = true;
  for (int peer = 0; peer < count_; ++peer) {
    if (peer != index_) send(make_message(peer, {.word = Word::goodbye}, std::string_view()));
  }
}

// The others have a moment to hear why.
void Link::say_farewell() {
  const std::string why = [this] {
    const std::lock_guard lock(mutex_);
    return to_tell_;
  }();
  break_link(why, true);
  const Clock::time_point until = Clock::now() + milliseconds(300);
  while (transport_->sending() > 0 && Clock::now() < until) {
    while (transport_->receive()) continue;
    std::this_thread::sleep_for(milliseconds(1));
  }
  leave_open(std::move(transport_));
}

bool Link::has_failed_peer() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.failed; });
}

// Whoever fails tells everybody; those who hear of it leave without a word.
bool Link::may_close() const {
  if (has_failed_peer()) return true;
  if (transport_->sending() > 0) return false;
  return std::all_of(peers_.begin(), peers_.end(), [this](const Peer& peer) {
    return peer.gone || &peer == &peers_[static_cast<size_t>(index_)];
  });
}

// Together with the others, unless one of them will not come.
void Link::close_transport() {
  if (!has_failed_peer()) return transport_->close();
  leave_open(std::move(transport_));
}

// Spins only where somebody waits, who leaves a core to this thread meanwhile.
void Link::rest(bool did_something) {
  const Clock::time_point now = Clock::now();
  if (did_something) {
    idle_since_ = now;
    return;
  }
  const bool awaited = std::any_of(operations_.begin(), operations_.end(),
                                   [](const auto& entry) { return entry.second->is_awaited(); });
  if (awaited && now - idle_since_ < milliseconds(2)) {
    sched_yield();
    return;
  }
  std::unique_lock lock(mutex_);
  if (!posted_.empty()) return;
  const auto nap = operations_.empty() ? milliseconds(10) : std::chrono::microseconds(100);
  posted_something_.wait_for(lock, nap);
}

void Link::send(Message message) {
  ++messages_;
  bytes_ += static_cast<int64_t>(message.size);
  transport_->send(std::move(message));
}

bool Link::has_room() { return transport_->sending() < messages_under_way; }

}  // namespace tessera::dist
