#include "tessera/api/optimizer_state.h"

namespace tessera {

std::optional<OptimizerStateDict> OptimizerState::read(bool* fetched) {
  const std::lock_guard link(link_);
  const bool brought = holder_ && holder_->bring_optimizer_state();
  if (fetched) *fetched = brought;
  const std::lock_guard lock(mutex_);
  return values_;
}

void OptimizerState::load(OptimizerStateDict values) {
  const std::lock_guard lock(mutex_);
  values_ = std::move(values);
  loaded_ = true;
  numbers_ = connected_;
  pending_ = true;
}

void OptimizerState::connect(OptimizerStateHolder& holder) {
  const std::lock_guard link(link_);
  if (holder_ == &holder) return;
  if (holder_) holder_->bring_optimizer_state();
  holder_ = &holder;
  const std::lock_guard lock(mutex_);
  connected_ = true;
  numbers_ = false;  // the executor has just taken them from the optimiser
  pending_ = values_.has_value();
}

void OptimizerState::disconnect(OptimizerStateHolder& holder, bool bring_values) {
  const std::lock_guard link(link_);
  if (holder_ != &holder) return;
  if (bring_values) holder.bring_optimizer_state();
  holder_ = nullptr;
  const std::lock_guard lock(mutex_);
  connected_ = false;
}

std::optional<OptimizerState::Pending> OptimizerState::to_send() const {
  const std::lock_guard lock(mutex_);
  if (!values_) return std::nullopt;
  return Pending{*values_, pending_ && loaded_, pending_ && numbers_};
}

void OptimizerState::sent() {
  const std::lock_guard lock(mutex_);
  values_.reset();  // the device has them, and will have newer ones
  loaded_ = numbers_ = false;
  pending_ = false;
}

void OptimizerState::store(OptimizerStateDict values) {
  const std::lock_guard lock(mutex_);
  if (!pending_) values_ = std::move(values);  // what was loaded meanwhile is newer
}

void OptimizerState::clear() {
  const std::lock_guard lock(mutex_);
  values_.reset();
  loaded_ = numbers_ = false;
  pending_ = false;
}

}  // namespace tessera
