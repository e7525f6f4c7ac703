#include "tessera/api/optimizer/optimizer_state.h"

#include <algorithm>

namespace tessera {

std::optional<OptimizerStateDict> OptimizerState::read(bool* fetched) {
  const std::lock_guard link(link_);
  OptimizerStateHolder* const holder = holder_;
  const bool brought = holder && holder->bring_optimizer_state();
  if (fetched) *fetched = brought;
  const std::lock_guard lock(mutex_);
  return values_;
}

std::optional<OptimizerState::Glance> OptimizerState::glance() {
  const std::lock_guard link(link_);
  OptimizerStateHolder* const holder = holder_;
  auto numbers = holder ? holder->newer_numbers() : std::nullopt;
  const std::lock_guard lock(mutex_);
  auto snapshot = std::make_shared<OptimizerSnapshot>(shared_from_this());
  if (numbers && !pending_) {
    waiting_.push_back(snapshot);
    some_wait_ = true;
    return Glance{std::move(snapshot), std::move(*numbers), true};
  }
  if (!values_) return std::nullopt;
  snapshot->fill(values_->ipu_state);
  return Glance{std::move(snapshot), values_->ipu_param, false};
}

bool OptimizerState::has_waiting() const {
  if (!some_wait_) return false;
  const std::lock_guard lock(mutex_);
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [](const auto& snapshot) { return !snapshot.expired(); });
}

std::vector<NamedTensor> OptimizerSnapshot::ipu_state() {
  const auto known = [this] {
    const std::lock_guard lock(mutex_);
    return values_;
  };
  if (auto values = known()) return *values;
  source_->read();  // fills all that wait
  return known().value_or(std::vector<NamedTensor>());
}

void OptimizerSnapshot::fill(const std::vector<NamedTensor>& values) {
  const std::lock_guard lock(mutex_);
  if (!values_) values_ = values;
}

void OptimizerState::load(OptimizerStateDict values) {
  if (has_waiting()) read();
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
  for (const auto& waiting : waiting_) {
    if (const auto snapshot = waiting.lock()) snapshot->fill(values.ipu_state);
  }
  waiting_.clear();
  some_wait_ = false;
  values_ = std::move(values);
}

void OptimizerState::clear() {
  const std::lock_guard lock(mutex_);
  values_.reset();
  loaded_ = numbers_ = false;
  pending_ = false;
}

}  // namespace tessera
