// Runs beside an engine and finds the call that is wrong. What every call writes is kept as the
// plain value of the graph that it is, apart from the engine's memory. Then
//
// - an operand must be, element for element, what its value was when it was written;
// - a result must be what the reference kernel of the operator's row makes of the same operands,
//   but for rounding; its memory is filled with rubbish first, so that what is not written shows;
// - outputs and states must be their values at the end of each phase.
//
// How far rounding may go is asked of the reference kernel itself: how much the result moves when
// the operands, and the values between the steps of a fused body, move by a few units in their last
// place. A step takes many times as long as without.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tessera/backend/cpu/plan.h"
#include "tessera/base/rng.h"
#include "tessera/base/thread_pool.h"

namespace tessera::cpu {

class Referee {
 public:
  // Keeps a reference to the plan.
  explicit Referee(const Plan& plan);

  // Everything before is forgotten; then each state is shown, as it is.
  void begin_micro_batch();
  void take_state(size_t state, const TensorView& seen, ThreadPool& pool);

  // Around the run of the plan's call with that number. Error where it is wrong.
  void before(size_t call, std::span<const TensorView> operands,
              std::span<const TensorView> results, ThreadPool& pool);
  void after(size_t call, std::span<const TensorView> results, ThreadPool& pool, RngState rng);

  // At the end of a phase: what the outside sees. Error where it is not the graph's value.
  void check_output(size_t output, const TensorView& seen, ThreadPool& pool);
  void check_state(size_t state, Phase phase, const TensorView& seen, ThreadPool& pool);

 private:
  using Bytes = std::vector<std::byte>;

  const Bytes& value(ValueId id, ThreadPool& pool);
  void adopt(const Place& place, const TensorView& view, ThreadPool& pool);
  // What a reference kernel does not get or make as it is: everything by as much as f32 rounds, or
  // what a body rounds to halves by as much as they do.
  enum class Moved : uint8_t { nothing, all, halves };
  std::vector<Bytes> reference(const Node& node, Moved moved, uint64_t key, ThreadPool& pool,
                               RngState rng);
  void compare(const Call& call, size_t number, size_t result, const Bytes& got,
               const Bytes& wanted, std::span<const std::vector<Bytes>> moved,
               std::span<const std::vector<Bytes>> halves_moved);
  Bytes& kept(ValueId id) { return values_[static_cast<size_t>(id.index)]; }

  const Plan& plan_;
  const Graph& graph_;
  std::vector<Bytes> values_;                // by value: dense, row-major; empty where not known
  std::vector<std::vector<ValueId>> dying_;  // by call: what nobody asks for after it
};

}  // namespace tessera::cpu
