// Runs one kernel on random operands of given strides, and the operator's reference kernel beside
// it.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/backend/cpu/memory.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {

class KernelTrial {
 public:
  // Operands of type f32 in the order of the row; an empty shape: left out.
  KernelTrial(std::string_view op_name, const std::vector<Geometry>& operands, Attrs attrs = {})
      : row_(op(op_name)), attrs_(completed(row_, std::move(attrs))) {
    std::mt19937 random(3);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<std::optional<TensorType>> types;
    for (const Geometry& geometry : operands) {
      const bool present = !geometry.shape.empty();
      inputs_.push_back({DType::f32, geometry, present});
      types.push_back(present ? std::optional(TensorType{DType::f32, geometry.shape})
                              : std::nullopt);
      auto& values = memory_.emplace_back(static_cast<size_t>(present ? extent(geometry) : 0));
      for (float& value : values) value = uniform(random);
    }
    const TensorType result = infer(row_, types, attrs_).at(0);
    outputs_.push_back({result.dtype, dense(result.shape), true});
    choice_ = choose_kernel({row_, attrs_, inputs_, outputs_});
  }

  const std::string& kernel() const { return choice_.name; }
  std::vector<float> result(int threads) const { return run(*choice_.kernel, threads); }
  std::vector<float> expected() const { return run(*reference_kernel(row_).kernel, 1); }

  // The largest difference, relative to the largest value.
  double error() const {
    const auto wanted = expected(), got = result(1);
    double difference = 0, largest = 1e-6;
    for (size_t i = 0; i < wanted.size(); ++i) {
      difference = std::max(difference, std::abs(double{wanted[i]} - double{got[i]}));
      largest = std::max(largest, std::abs(double{wanted[i]}));
      if (std::isnan(got[i])) return 1e9;
    }
    return difference / largest;
  }

 private:
  std::vector<float> run(const PreparedKernel& kernel, int threads) const {
    ThreadPool pool(threads);
    std::vector<float> out(static_cast<size_t>(numel(outputs_[0].geometry.shape)), NAN);
    std::vector<TensorView> inputs;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const float* data = memory_[i].data() + inputs_[i].geometry.offset;
      inputs.push_back({reinterpret_cast<std::byte*>(const_cast<float*>(data)), DType::f32,
                        inputs_[i].geometry.shape, inputs_[i].geometry.strides,
                        inputs_[i].present});
    }
    const TensorView output{reinterpret_cast<std::byte*>(out.data()), DType::f32,
                            outputs_[0].geometry.shape, outputs_[0].geometry.strides};
    // Whatever lay in the workspace before must not matter.
    const Memory workspace(kernel.workspace_bytes());
    if (workspace.bytes() > 0)
      std::memset(workspace.data(), 0xff, static_cast<size_t>(workspace.bytes()));
    kernel.run({inputs, {&output, 1}, attrs_, pool, {}},
               {workspace.data(), static_cast<size_t>(workspace.bytes())});
    return out;
  }

  const OpDef& row_;
  Attrs attrs_;
  std::vector<KernelOperand> inputs_, outputs_;
  std::vector<std::vector<float>> memory_;
  KernelChoice choice_;
};

}  // namespace tessera::cpu
