// What an optimiser remembers, and the numbers its program has, as the host knows them. An
// optimiser shares this with the executor that runs it: the executor holds newer values on the
// device and brings them when they are asked for; loaded values go to the device before it runs
// again. The values outlive the executor.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tessera/api/optimizer/optimizer_kinds.h"
#include "tessera/torch/recorder.h"

namespace tessera {

struct OptimizerStateDict {
  std::vector<NamedTensor> ipu_state;   // Accl1___fc.weight, Step___fc.weight, ...
  std::vector<NamedTensor> ipu_param;   // learningRate___specific___fc.weight, ..., as float32
  std::vector<OptimizerValues> groups;  // the same numbers, of each group, in full
};

class OptimizerState;

// What an optimiser remembered at one moment. It stays on the device until somebody looks at it or
// the program is about to change it, whichever comes first.
class OptimizerSnapshot {
 public:
  explicit OptimizerSnapshot(std::shared_ptr<OptimizerState> source) : source_(std::move(source)) {}
  std::vector<NamedTensor> ipu_state();
  void fill(const std::vector<NamedTensor>& values);  // nothing where it has them

 private:
  std::mutex mutex_;
  std::optional<std::vector<NamedTensor>> values_;
  std::shared_ptr<OptimizerState> source_;
};

class OptimizerStateHolder {
 public:
  virtual ~OptimizerStateHolder() = default;
  // The numbers of the device where it has newer values than were stored; nothing where not.
  virtual std::optional<std::vector<NamedTensor>> newer_numbers() = 0;
  // Stores the values of the device where they are newer; true where they were.
  virtual bool bring_optimizer_state() = 0;
};

class OptimizerState : public std::enable_shared_from_this<OptimizerState> {
 public:
  // The newest values; nothing before a program was compiled or values were loaded. `fetched` says
  // whether they had to come from the device.
  std::optional<OptimizerStateDict> read(bool* fetched = nullptr);

  // The same, for those who may not look at all of it; nothing where read() gives nothing.
  struct Glance {
    std::shared_ptr<OptimizerSnapshot> state;
    std::vector<NamedTensor> ipu_param;
    bool on_device = false;  // the state has not been fetched yet
  };
  std::optional<Glance> glance();

  // These go to the device before the program runs again.
  void load(OptimizerStateDict values);

  // For executors; without their own lock, which bring_optimizer_state() takes. Connecting takes
  // the values of the executor before, and marks them as to be sent.
  void connect(OptimizerStateHolder& holder);
  void disconnect(OptimizerStateHolder& holder, bool bring_values);

  // For executors, also with their lock. An executor that is not connected any more has no part.
  struct Pending {
    OptimizerStateDict values;
    bool loaded = false;   // by the user
    bool numbers = false;  // ... while connected, so that they are newer than the executor's
  };
  bool pending(const OptimizerStateHolder& holder) const { return pending_ && holder_ == &holder; }
  // All there is, also where it was sent before.
  std::optional<Pending> to_send(const OptimizerStateHolder& holder) const;
  // True where somebody still holds a snapshot that has no values yet.
  bool has_waiting() const;
  void forget_numbers();  // newer ones were set since
  void sent();
  void store(const OptimizerStateHolder& holder, OptimizerStateDict values);
  void clear();

 private:
  std::mutex link_;  // held while the holder's values come, so that it cannot go meanwhile
  std::atomic<OptimizerStateHolder*> holder_ = nullptr;

  mutable std::mutex mutex_;  // of the rest; nothing is called under it
  std::optional<OptimizerStateDict> values_;
  bool loaded_ = false, numbers_ = false;
  std::atomic<bool> pending_ = false;
  std::atomic<bool> some_wait_ = false;
  std::vector<std::weak_ptr<OptimizerSnapshot>> waiting_;
};

}  // namespace tessera
