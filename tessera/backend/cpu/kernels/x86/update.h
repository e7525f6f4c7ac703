// The steps of optimisers on whole vectors. Each reads the numbers of its call once and can then be
// run on any range of elements, by any thread, also with gradients that are made on the way. Needs
// AVX2; the arithmetic is the rows' own, but with fused multiply-adds where the rows emulate them
// in double.
#pragma once

#include <array>
#include <cstdint>

#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/ops/kernel_call.h"

namespace tessera::cpu {

// Whether the parameter, what is remembered of it and the results lie in one order, whatever their
// layout; with `gradient_too` also the operand `grad`.
bool update_applies(const KernelUse& use, bool gradient_too);

class SgdUpdate {
 public:
  explicit SgdUpdate(const KernelCall& call);
  void run(int64_t begin, int64_t end) const { run(begin, end, grad_ + begin); }
  // With another gradient: that of element `begin` and those after it.
  void run(int64_t begin, int64_t end, const float* grad) const;
  // With factor * row as gradient: of an outer product.
  void run_outer(int64_t begin, int64_t end, float factor, const float* row) const;
  void finish(const KernelCall& call) const;  // once, after all elements: counts the step
  // Calls sweep(number of memories that the rule has, rule): update_rules.h.
  template <typename Sweep>
  void with_rule(const Sweep& sweep) const;

 private:
  template <typename Gradient>
  void run_with(Gradient gradient, int64_t begin, int64_t end) const;

  float rate_, momentum_, undamped_, decay_;
  bool first_, nesterov_;
  const float *param_, *grad_, *velocity_;
  float *new_param_, *new_velocity_ = nullptr;
};

class AdamUpdate {
 public:
  explicit AdamUpdate(const KernelCall& call);
  void run(int64_t begin, int64_t end) const { run(begin, end, in_[1] + begin); }
  void run(int64_t begin, int64_t end, const float* grad) const;
  void run_outer(int64_t begin, int64_t end, float factor, const float* row) const;
  void finish(const KernelCall& call) const;
  template <typename Sweep>
  void with_rule(const Sweep& sweep) const;

 private:
  template <typename Gradient>
  void run_with(Gradient gradient, int64_t begin, int64_t end) const;

  float keep_first_, add_first_, keep_second_, add_second_;
  float into_grad_, shrink_, step_size_, root_bias_, epsilon_;
  std::array<const float*, 4> in_;
  std::array<float*, 3> out_;
};

class RmspropUpdate {
 public:
  explicit RmspropUpdate(const KernelCall& call);
  void run(int64_t begin, int64_t end) const { run(begin, end, grad_ + begin); }
  void run(int64_t begin, int64_t end, const float* grad) const;
  void run_outer(int64_t begin, int64_t end, float factor, const float* row) const;
  void finish(const KernelCall& call) const;
  template <typename Sweep>
  void with_rule(const Sweep& sweep) const;

 private:
  template <typename Gradient>
  void run_with(Gradient gradient, int64_t begin, int64_t end) const;

  float rate_, keep_, add_, epsilon_, decay_, momentum_;
  bool tf_variant_, first_;
  const float *param_, *grad_, *square_, *buffer_ = nullptr;
  float *new_param_, *new_square_, *new_buffer_ = nullptr;
};

}  // namespace tessera::cpu
