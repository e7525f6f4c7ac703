// Who is missing: whoever waits asks the others, and gives up when it knows that it waits in vain.
#include <algorithm>
#include <chrono>

#include "tessera/dist/link.h"

namespace tessera::dist {
namespace {

using Seconds = std::chrono::duration<double>;

// What an answer says, in its header's `origin`.
constexpr int32_t has_come = 1;
constexpr int32_t waits_for_you = 2;

double in_seconds(Clock::duration time) { return Seconds(time).count(); }

}  // namespace

// Has this instance come to the operation? If not, what does it do instead?
void Link::answer(int to, const OperationKey& key) {
  Header header{.word = Word::answer, .key = key};
  if (operations_.contains(key) || std::find(ended_.begin(), ended_.end(), key) != ended_.end()) {
    header.origin = has_come;
    return send(make_message(to, header, std::string_view()));
  }
  std::string does = said_goodbye_ ? "has ended its program" : "is busy with something else";
  for (const auto& [other, operation] : operations_) {
    if (!operation->is_awaited()) continue;
    does = fmt::format("waits in {}", operation->what());
    header.total = other.channel;
    header.offset = other.number;
    const Members& members = operation->members();
    if (std::find(members.begin(), members.end(), to) != members.end()) {
      header.origin |= waits_for_you;
    }
  }
  send(make_message(to, header, does));
}

void Link::take_answer(int from, const Header& header, std::string_view text) {
  if (header.origin & has_come) {
    absences_[header.key].erase(from);
    return;
  }
  Absence& absence = absences_[header.key][from];
  const OperationKey waits_in{header.total, header.offset};
  const bool waits_for_us = (header.origin & waits_for_you) != 0;
  if (absence.since == Clock::time_point{} || absence.waits_in != waits_in ||
      absence.waits_for_us != waits_for_us) {
    absence.since = Clock::now();
  }
  absence.does = text;
  absence.waits_in = waits_in;
  absence.waits_for_us = waits_for_us;
}

void Link::look_after(Clock::time_point now) {
  last_look_ = now;
  std::vector<std::shared_ptr<Operation>> awaited;
  for (const auto& [key, operation] : operations_) {
    if (operation->is_awaited()) awaited.push_back(operation);
  }
  for (const auto& operation : awaited) {
    if (is_broken()) return;
    look_after(*operation, now);
  }
}

// Whoever waits shall not wait for ever.
void Link::look_after(Operation& operation, Clock::time_point now) {
  const Seconds silence = now - operation.last_progress;
  const Seconds until_asked = std::min(Seconds(2), settings_.patience / 4);
  if (silence < until_asked) return;
  for (const int member : operation.members()) {
    const Peer& peer = peers_[static_cast<size_t>(member)];
    // Somebody else may still pass on what it left behind.
    if (member == index_ || !peer.gone || now - peer.left < 1.5 * until_asked) continue;
    return break_link(fmt::format("{} has ended its program while {} waits in {}: all instances "
                                  "must do the same steps, with as many batches each",
                                  name_of(member), name_of(index_), operation.what()),
                      true);
  }
  for (const auto& [member, absence] : absences_[operation.key()]) {
    const bool mutual = absence.waits_for_us && !operations_.contains(absence.waits_in);
    if (!mutual || silence < settings_.deadlock || now - absence.since < settings_.deadlock / 2) {
      continue;
    }
    return break_link(
        fmt::format("{} waits in {}, while {} {}: all instances must do the same, with as many "
                    "batches each and the same writing of weights",
                    name_of(index_), operation.what(), name_of(member), absence.does),
        true);
  }
  if (silence >= settings_.patience) return break_link(why_nothing_comes(operation, now), true);
  ask_members(operation, now, until_asked);
}

void Link::ask_members(const Operation& operation, Clock::time_point now, Seconds every) {
  Clock::time_point& asked = asked_[operation.key()];
  if (now - asked < every) return;
  asked = now;
  for (const int member : operation.members()) {
    if (member == index_ || peers_[static_cast<size_t>(member)].gone) continue;
    send(make_message(member, {.word = Word::ask, .key = operation.key()}, std::string_view()));
  }
}

std::string Link::why_nothing_comes(const Operation& operation, Clock::time_point now) {
  const double seconds = in_seconds(now - operation.last_progress);
  const std::string_view more_patience = "TESSERA_INSTANCE_TIMEOUT says how long to wait";
  for (const int member : operation.members()) {
    if (member == index_ ||
        now - peers_[static_cast<size_t>(member)].heard < settings_.patience / 2)
      continue;
    return fmt::format(
        "{} has not answered for {:.0f} s while {} waits in {}: it is stopped, or its machine "
        "cannot be reached; {}",
        name_of(member), in_seconds(now - peers_[static_cast<size_t>(member)].heard),
        name_of(index_), operation.what(), more_patience);
  }
  for (const auto& [member, absence] : absences_[operation.key()]) {
    return fmt::format("{} has not come to {} for {:.0f} s, where {} waits for it: it {}; {}",
                       name_of(member), operation.what(), seconds, name_of(index_), absence.does,
                       more_patience);
  }
  return fmt::format("{} has waited in {} for {:.0f} s in vain; {}", name_of(index_),
                     operation.what(), seconds, more_patience);
}

}  // namespace tessera::dist
