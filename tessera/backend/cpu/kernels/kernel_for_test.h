// Runs one kernel on random operands of given strides, in the layouts it asks for, and the
// operator's reference kernel beside it.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "tessera/backend/cpu/kernels/copy.h"
#include "tessera/backend/cpu/kernels/run_kernel_for_test.h"
#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/backend/cpu/target_for_test.h"
#include "tessera/base/cpu_level_for_test.h"
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
    lay_out(requested_layouts({row_, attrs_, inputs_, outputs_, target_for_test()}).layouts);
    choice_ = choose_kernel({row_, attrs_, laid_inputs_, laid_outputs_, target_for_test()});
  }

  const std::string& kernel() const { return choice_.name; }
  std::vector<float> result(int threads) const {
    const Layout& layout = laid_outputs_[0].layout;
    const auto laid = run(*choice_.kernel, laid_inputs_, laid_memory_, laid_outputs_[0], threads);
    return in_order(laid, logical_order(layout, outputs_[0].geometry.shape));
  }
  std::vector<float> expected() const {
    return run(*reference_kernel(row_).kernel, inputs_, memory_, outputs_[0], 1);
  }

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
  using Values = std::vector<float>;

  // The elements that `geometry` names, one after the other.
  static Values in_order(const Values& memory, const Geometry& geometry) {
    Values out(static_cast<size_t>(numel(geometry.shape)));
    if (out.empty()) return out;
    ThreadPool pool(1, level_for_test());
    const auto data = [](const Values& v, int64_t offset) {
      return reinterpret_cast<std::byte*>(const_cast<float*>(v.data() + offset));
    };
    copy_dense({data(memory, geometry.offset), DType::f32, geometry.shape, geometry.strides},
               data(out, 0), pool);
    return out;
  }

  void lay_out(const std::vector<Layout>& layouts) {
    laid_inputs_ = inputs_;
    laid_outputs_ = outputs_;
    laid_memory_ = memory_;
    for (size_t i = 0; i < layouts.size(); ++i) {
      if (layouts[i].plain()) continue;
      const bool input = i < inputs_.size();
      KernelOperand& operand = input ? laid_inputs_[i] : laid_outputs_[i - inputs_.size()];
      const Geometry logical = operand.geometry;
      operand.layout = layouts[i];
      operand.geometry = dense(physical_shape(layouts[i], logical.shape));
      if (input) laid_memory_[i] = in_order(memory_[i], physical_geometry(layouts[i], logical));
    }
  }

  Values run(const PreparedKernel& kernel, const std::vector<KernelOperand>& operands,
             const std::vector<Values>& memory, const KernelOperand& result, int threads) const {
    ThreadPool pool(threads, level_for_test());
    Values out(static_cast<size_t>(numel(result.geometry.shape)), NAN);
    std::vector<TensorView> inputs;
    for (size_t i = 0; i < operands.size(); ++i) {
      const float* data = memory[i].data() + operands[i].geometry.offset;
      inputs.push_back({reinterpret_cast<std::byte*>(const_cast<float*>(data)), DType::f32,
                        operands[i].geometry.shape, operands[i].geometry.strides,
                        operands[i].present});
    }
    const TensorView output{reinterpret_cast<std::byte*>(out.data()), DType::f32,
                            result.geometry.shape, result.geometry.strides};
    const KernelCall call{
        .inputs = inputs, .outputs = {&output, 1}, .attrs = attrs_, .pool = pool, .rng = {}};
    run_kernel_of(choice_, kernel, call);
    return out;
  }

  const OpDef& row_;
  Attrs attrs_;
  std::vector<KernelOperand> inputs_, outputs_, laid_inputs_, laid_outputs_;
  std::vector<Values> memory_, laid_memory_;
  KernelChoice choice_;
};

}  // namespace tessera::cpu
