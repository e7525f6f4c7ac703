// This process as one of several instances: a thread of its own speaks with the others, so that
// additions go on while the program computes. It notices when one of them fails, leaves or stays
// away, and then whoever waits gets an Error that says which one, on which machine, and why.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/build_id.h"
#include "tessera/base/instances.h"
#include "tessera/dist/operation.h"
#include "tessera/dist/transport.h"

namespace tessera::dist {

struct LinkSettings {
  // So long nothing may come of what somebody waits for.
  std::chrono::duration<double> patience = std::chrono::minutes(10);
  // Two instances that wait for each other will wait for ever; so long they might still be saved by
  // a thread of theirs.
  std::chrono::duration<double> deadlock = std::chrono::seconds(10);
  size_t piece_bytes = most_piece_bytes;
  std::string build = build_id();  // all instances must have the same
};

// What the thread has done so far.
struct LinkCounters {
  int64_t messages = 0, bytes = 0;  // sent
  int64_t waited_nanoseconds = 0;   // by programs, for additions of their steps
};

class Link : public Instances, private Outbox {
 public:
  // Opens the transport in its thread, which is the only one that uses it; Error where that fails,
  // or takes longer than the patience.
  Link(std::function<std::unique_ptr<Transport>()> open, LinkSettings settings);
  ~Link() override;

  int index() const override { return index_; }
  int count() const override { return count_; }
  std::string name_of(int instance) const;  // "instance 1 on host.example"
  std::string host_of(int instance) const;

  std::vector<std::string> gather(const std::string& what, std::string said,
                                  const std::function<void()>& poll) override;
  void broadcast(const std::string& what, std::span<std::byte> values, int root,
                 const std::function<void()>& poll) override;
  uint64_t open_program(const std::string& name) override;
  std::shared_ptr<Pending> begin(JointAddition addition) override;
  void drop(uint64_t program) override;
  void fail(const std::string& why) override;

  // The same among some of the instances, in ascending order; none stands for all. Whoever is no
  // member must not call it.
  using Members = std::vector<int>;
  std::vector<std::string> gather(const Members& members, const std::string& what, std::string said,
                                  const std::function<void()>& poll);
  void broadcast(const Members& members, const std::string& what, std::span<std::byte> values,
                 int root, const std::function<void()>& poll);
  void reduce(const Members& members, const std::string& what, Reduction reduction, DType dtype,
              std::span<std::byte> values, const std::function<void()>& poll);
  void barrier(const Members& members, const std::string& what, const std::function<void()>& poll);

  LinkCounters counters() const;

  // This instance's program has ended: waits until those of the others have, too.
  void close();
  // The same where it has ended badly: the others are told, nobody is waited for.
  void close_failed(const std::string& why);

 private:
  struct Peer {
    bool gone = false, failed = false;
    Clock::time_point heard = Clock::now();
    Clock::time_point left = {};
  };
  // What another instance answers who was asked for an operation.
  struct Absence {
    std::string does;  // what it does instead
    OperationKey waits_in = {};
    bool waits_for_us = false;
    Clock::time_point since = {};
  };
  enum class Ending { none, friendly, failed };
  struct Opening;

  std::shared_ptr<Operation> post(std::shared_ptr<Operation> operation);
  OperationKey next_key(const Members& members);
  Members all_if_none(const Members& members) const;
  void exchange_hosts();
  size_t piece_bytes() const;
  void check_process() const;

  // In the thread.
  void begin_with(std::unique_ptr<Transport> transport);
  void run();
  bool work();
  bool take_posted();
  bool take_messages();
  bool advance_all();
  void take_up(const std::shared_ptr<Operation>& operation);
  void drop_now(uint64_t program);
  void hand_over(Operation& operation, Message message);
  void take_control(const Header& header, const Message& message);
  void look_at_transport();
  // Who is missing: link_watch.cpp.
  void answer(int to, const OperationKey& key);
  void take_answer(int from, const Header& header, std::string_view text);
  void look_after(Clock::time_point now);
  void look_after(Operation& operation, Clock::time_point now);
  void ask_members(const Operation& operation, Clock::time_point now,
                   std::chrono::duration<double> every);
  std::string why_nothing_comes(const Operation& operation, Clock::time_point now);
  std::string why_broken() const;
  bool is_broken() const { return !why_broken().empty(); }
  void break_link(const std::string& why, bool tell);
  std::exception_ptr error_of(const std::string& why) const;
  void rest(bool did_something);
  void say_goodbye();
  void say_farewell();
  bool has_failed_peer() const;
  bool may_close() const;
  void close_transport();

  void send(Message message) override;
  bool has_room() override;

  const LinkSettings settings_;
  const int process_;  // a fork of it has no such thread
  int index_ = 0, count_ = 1;

  mutable std::mutex mutex_;  // of what follows
  std::vector<std::string> hosts_;
  std::condition_variable posted_something_;
  std::condition_variable dropped_;
  std::deque<std::shared_ptr<Operation>> posted_;
  std::set<uint64_t> dropping_;
  std::map<uint64_t, std::string> program_names_;
  std::map<Members, uint64_t> group_numbers_;
  std::string broken_;  // why; empty while all is well
  std::string to_tell_;
  Ending ending_ = Ending::none;
  bool has_ended_ = false;

  std::atomic<int64_t> messages_ = 0, bytes_ = 0, waited_nanoseconds_ = 0;

  // Of the thread alone.
  std::unique_ptr<Transport> transport_;
  std::map<OperationKey, std::shared_ptr<Operation>> operations_;
  std::map<OperationKey, std::vector<Message>> early_;  // of operations not begun here
  std::map<OperationKey, std::map<int, Absence>> absences_;
  std::map<OperationKey, Clock::time_point> asked_;
  std::deque<OperationKey> ended_;  // the last ones
  std::vector<Peer> peers_;
  Clock::time_point last_look_ = {};
  Clock::time_point idle_since_ = {};
  bool said_goodbye_ = false;

  std::thread thread_;
};

}  // namespace tessera::dist
