#include "tessera/backend/cpu/kernels/x86/fused/emitter.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "tessera/base/error.h"

namespace tessera::cpu {

using Xbyak::Address;

Address FusedEmitter::slot(size_t number) const {
  return code_.ptr[code_.rsp + static_cast<int>(number) * slot_bytes];
}

size_t FusedEmitter::next_use(const State& state) const {
  const auto next = std::lower_bound(state.uses.begin(), state.uses.end(), position_);
  return next == state.uses.end() ? std::numeric_limits<size_t>::max() : *next;
}

// The value that is needed last gives its register up.
int FusedEmitter::free_register() {
  for (int reg = 0; reg < 16; ++reg) {
    if (owner_[static_cast<size_t>(reg)] == nobody) return reg;
  }
  int victim = -1;
  size_t latest = 0;
  for (int reg = 0; reg < 16; ++reg) {
    const int owner = owner_[static_cast<size_t>(reg)];
    if (owner < 0) continue;
    const State& state = values_[static_cast<size_t>(owner)];
    if (state.locked || (victim >= 0 && next_use(state) <= latest)) continue;
    victim = reg;
    latest = next_use(state);
  }
  TESSERA_INVARIANT(victim >= 0, "a fused step needs more registers than there are");
  const auto value = static_cast<size_t>(owner_[static_cast<size_t>(victim)]);
  State& state = values_[value];
  if (!state.in_slot) code_.vmovups(slot(value), Ymm(victim));
  state.in_slot = true;
  state.reg = -1;
  return victim;
}

FusedEmitter::Ymm FusedEmitter::fresh() {
  const int reg = free_register();
  owner_[static_cast<size_t>(reg)] = scratch;
  return Ymm(reg);
}

void FusedEmitter::release(const Ymm& reg) {
  int& owner = owner_[static_cast<size_t>(reg.getIdx())];
  if (owner == scratch) owner = nobody;
}

FusedEmitter::Ymm FusedEmitter::load(const Address& address) {
  const Ymm reg = fresh();
  code_.vmovups(reg, address);
  return reg;
}

FusedEmitter::Ymm FusedEmitter::reg(Value value) {
  State& state = values_[value];
  state.locked = true;
  if (state.reg < 0) {
    TESSERA_INVARIANT(state.in_slot, "a fused value is used before it is made");
    state.reg = free_register();
    owner_[static_cast<size_t>(state.reg)] = static_cast<int>(value);
    code_.vmovups(Ymm(state.reg), slot(value));
  }
  return Ymm(state.reg);
}

FusedEmitter::Source FusedEmitter::source(Value value) {
  State& state = values_[value];
  if (state.reg < 0 && state.fixed) return Source(slot(value));
  return Source(reg(value));
}

Address FusedEmitter::lanes(const Lanes& bits) {
  for (Constant& constant : constants_) {
    if (constant.bits == bits) return code_.ptr[code_.rip + constant.label];
  }
  Constant& constant = constants_.emplace_back();
  constant.bits = bits;
  return code_.ptr[code_.rip + constant.label];
}

Address FusedEmitter::integer(uint32_t value) {
  Lanes bits{};
  bits.fill(value);
  return lanes(bits);
}

Address FusedEmitter::number(float value) { return integer(std::bit_cast<uint32_t>(value)); }

void FusedEmitter::write_constants() {
  code_.align(32);
  for (Constant& constant : constants_) {
    code_.L(constant.label);
    for (const uint32_t word : constant.bits) code_.dd(word);
  }
}

void FusedEmitter::set_uses(Value value, std::vector<size_t> positions) {
  values_[value].uses = std::move(positions);
}

void FusedEmitter::begin_vector() {
  for (State& state : values_) {
    state.locked = false;
    if (!state.fixed) state.in_slot = false;
    if (state.reg < 0 || owner_[static_cast<size_t>(state.reg)] == reserved) continue;
    owner_[static_cast<size_t>(state.reg)] = nobody;
    state.reg = -1;
  }
  position_ = 0;
}

void FusedEmitter::begin_step(size_t position) { position_ = position; }

void FusedEmitter::end_result() {
  for (State& state : values_) state.locked = false;
  for (int& owner : owner_) {
    if (owner == scratch) owner = nobody;
  }
}

void FusedEmitter::end_step() {
  end_result();
  ++position_;
  drop_dead();
}

void FusedEmitter::drop_dead() {
  for (State& state : values_) {
    if (state.reg < 0 || next_use(state) != std::numeric_limits<size_t>::max()) continue;
    int& owner = owner_[static_cast<size_t>(state.reg)];
    if (owner == reserved) continue;  // fixed
    owner = nobody;
    state.reg = -1;
  }
}

void FusedEmitter::define(Value value, const Ymm& reg) {
  State& state = values_[value];
  const int index = reg.getIdx();
  state.reg = index;
  state.locked = true;
  owner_[static_cast<size_t>(index)] = static_cast<int>(value);
}

void FusedEmitter::fix_in_slot(Value value) {
  values_[value].fixed = values_[value].in_slot = true;
}

void FusedEmitter::fix_in_register(Value value, int reg) {
  fix_in_slot(value);
  values_[value].reg = reg;
  reserve(reg);
}

}  // namespace tessera::cpu
