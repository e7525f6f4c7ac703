// The processes that run one program together, on one machine or several: instances, each with
// replicas of its own. They are counted as their replicas are: those of instance 0 come first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/communicator.h"

namespace tessera {

// What has been begun and will end. Whoever gives up waiting must let Instances::drop() it before
// its memory goes.
class Pending {
 public:
  virtual ~Pending() = default;
  // Error where it cannot end, which says who of the others is to blame. `poll` is asked a few
  // times a second; what it throws is thrown.
  virtual void wait(const std::function<void()>& poll) = 0;
};

// What all instances must agree on when they add up; it travels with the sums, and is compared.
struct StepStamp {
  uint32_t weights = 0;     // how often they were written from outside
  uint32_t numbers = 0;     // of the optimiser: a digest
  uint32_t iterations = 0;  // of this call

  bool operator==(const StepStamp&) const = default;
};

// An addition over all replicas of all instances.
struct JointAddition {
  uint64_t program = 0;  // which one, of those that the instances have opened together
  uint64_t number = 0;   // of the additions of that program, each once
  DType dtype = DType::f32;
  std::vector<std::vector<Summand>> replicas = {};  // of this instance, in their order
  StepStamp stamp = {};
};

class Instances {
 public:
  virtual ~Instances() = default;

  virtual int index() const = 0;
  virtual int count() const = 0;

  // What each instance says, by index; all of them call it. `what` is the occasion, for messages.
  virtual std::vector<std::string> gather(const std::string& what, std::string said,
                                          const std::function<void()>& poll) = 0;
  // What `root` has, everywhere.
  virtual void broadcast(const std::string& what, std::span<std::byte> values, int root,
                         const std::function<void()>& poll) = 0;

  // A number for a program that all instances open now. Its name is for messages.
  virtual uint64_t open_program(const std::string& name) = 0;
  virtual std::shared_ptr<Pending> begin(JointAddition addition) = 0;
  // Lets go what was begun for a program and has not ended.
  virtual void drop(uint64_t program) = 0;

  // This instance cannot go on: tells the others why, who end with an Error then.
  virtual void fail(const std::string& why) = 0;
};

}  // namespace tessera
