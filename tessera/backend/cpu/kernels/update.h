// The steps of optimisers on whole vectors. Each reads the numbers of its call once and can then be
// run on any range of elements, by any thread: also as the tail of the product that makes the
// gradient, while that still lies in the cache. Needs AVX2; the arithmetic is the rows' own, but
// with fused multiply-adds where the rows emulate them in double.
#pragma once

#include <array>
#include <cstdint>

#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/ops/kernel_call.h"

namespace tessera::cpu {

class SgdUpdate {
 public:
  explicit SgdUpdate(const KernelCall& call);
  void run(int64_t begin, int64_t end) const;
  void finish(const KernelCall& call) const;  // once, after all elements: counts the step

 private:
  float rate_, momentum_, undamped_, decay_;
  bool first_, nesterov_;
  const float *param_, *grad_, *velocity_;
  float *new_param_, *new_velocity_ = nullptr;
};

class AdamUpdate {
 public:
  explicit AdamUpdate(const KernelCall& call);
  void run(int64_t begin, int64_t end) const;
  void finish(const KernelCall& call) const;

 private:
  float keep_first_, add_first_, keep_second_, add_second_;
  float into_grad_, shrink_, step_size_, root_bias_, epsilon_;
  std::array<const float*, 4> in_;
  std::array<float*, 3> out_;
};

class RmspropUpdate {
 public:
  explicit RmspropUpdate(const KernelCall& call);
  void run(int64_t begin, int64_t end) const;
  void finish(const KernelCall& call) const;

 private:
  float rate_, keep_, add_, epsilon_, decay_, momentum_;
  bool tf_variant_, first_;
  const float *param_, *grad_, *square_, *buffer_ = nullptr;
  float *new_param_, *new_square_, *new_buffer_ = nullptr;
};

}  // namespace tessera::cpu
