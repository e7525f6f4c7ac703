#include "tessera/api/optimizer_state.h"

namespace tessera {

std::optional<OptimizerStateDict> OptimizerState::read(bool* fetched) {
  const std::lock_guard link(link_);
  OptimizerStateHolder* const holder = holder_;
  const bool brought = holder && holder->bring_optimizer_state();
  if (fetched) *fetched = brought;
  const std::lock_guard lock(mutex_);
  return values_;
}

void OptimizerState::load(OptimizerStateDict values) {
  const std::lock_guard lock(mutex_);
  values_ = std::move(values);
  loaded_ = true;
  numbers_ = holder_ != nullptr;
  pending_ = true;
}

void OptimizerState::connect(OptimizerStateHolder& holder) {
  const std::lock_guard link(link_);
  OptimizerStateHolder* const before = holder_;
  if (before == &holder) return;
  if (before) before->bring_optimizer_state();
  const std::lock_guard lock(mutex_);
  holder_ = &holder;
  numbers_ = false;  // the executor has just taken them from the optimiser
  pending_ = values_.has_value();
}

void OptimizerState::disconnect(OptimizerStateHolder& holder, bool bring_values) {
  if (holder_ != &holder) return;  // others do not wait for the one that is
  const std::lock_guard link(link_);
  if (holder_ != &holder) return;
  if (bring_values) holder.bring_optimizer_state();
  holder_ = nullptr;
}

std::optional<OptimizerState::Pending> OptimizerState::to_send(
    const OptimizerStateHolder& holder) const {
  const std::lock_guard lock(mutex_);
  if (!values_ || holder_ != &holder) return std::nullopt;
  return Pending{*values_, pending_ && loaded_, pending_ && numbers_};
}

void OptimizerState::forget_numbers() {
  const std::lock_guard lock(mutex_);
  numbers_ = false;
}

void OptimizerState::sent() {
  const std::lock_guard lock(mutex_);
  values_.reset();  // the device has them, and will have newer ones
  loaded_ = numbers_ = false;
  pending_ = false;
}

void OptimizerState::store(const OptimizerStateHolder& holder, OptimizerStateDict values) {
  const std::lock_guard lock(mutex_);
  if (pending_ || holder_ != &holder) return;  // what was loaded meanwhile is newer
  values_ = std::move(values);
}

void OptimizerState::clear() {
  const std::lock_guard lock(mutex_);
  values_.reset();
  loaded_ = numbers_ = false;
  pending_ = false;
}

}  // namespace tessera
