// Runs the kernel that is chosen for an operator whose operands and results lie in given layouts,
// and the reference kernel on the same values in plain ones; results are compared in plain order.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tessera/backend/cpu/kernels/run_kernel_for_test.h"
#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/backend/cpu/target_for_test.h"
#include "tessera/base/cpu_level_for_test.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {

struct TrialOperand {
  Shape shape;
  Layout layout = {};
  double low = -1, high = 1;  // values are drawn from here
  DType dtype = DType::f32;   // or i32
  bool present = true;
};

class OperatorTrial {
 public:
  using Bytes = std::vector<std::byte>;

  // Results without a layout of their own are plain.
  OperatorTrial(std::string_view op_name, std::vector<TrialOperand> operands, Attrs attrs = {},
                std::vector<Layout> results = {})
      : row_(op(op_name)),
        attrs_(completed(row_, std::move(attrs))),
        operands_(std::move(operands)) {
    std::mt19937 random(5);
    std::vector<std::optional<TensorType>> types;
    for (const TrialOperand& operand : operands_) {
      types.push_back(operand.present ? std::optional(TensorType{operand.dtype, operand.shape})
                                      : std::nullopt);
      values_.push_back(operand.present ? random_values(operand, random) : Bytes{});
    }
    for (TensorType type : infer(row_, types, attrs_)) {
      type.dtype = narrowed(type.dtype);
      results_.push_back(type);
    }
    results.resize(results_.size());
    result_layouts_ = std::move(results);
    choice_ = choose_kernel(use_of(operands_of(true), results_of(true)));
  }

  const std::string& kernel() const { return choice_.name; }

  const TensorType& result_type(size_t i) const { return results_[i]; }

  // Changes operand i before running; plain order.
  float* values(size_t i) { return reinterpret_cast<float*>(values_[i].data()); }
  int32_t* integers(size_t i) { return reinterpret_cast<int32_t*>(values_[i].data()); }

  std::vector<Bytes> result(int threads) const { return run(*choice_.kernel, threads, true); }
  std::vector<Bytes> expected() const { return run(*reference_kernel(row_).kernel, 1, false); }

  // Results within `tolerance` of the largest value of each (0: the same bits), for any threads.
  void expect_agrees(const std::string& kernel_name, double tolerance) const {
    EXPECT_EQ(kernel(), kernel_name);
    const auto wanted = expected(), got = result(1);
    for (size_t i = 0; i < wanted.size(); ++i) {
      SCOPED_TRACE("result " + std::to_string(i));
      if (tolerance == 0 || results_[i].dtype != DType::f32) {
        EXPECT_EQ(wanted[i], got[i]);
      } else {
        EXPECT_LE(error(wanted[i], got[i]), tolerance);
      }
    }
    EXPECT_EQ(result(2), got);
    EXPECT_EQ(result(3), got);
  }

 private:
  static Bytes random_values(const TrialOperand& operand, std::mt19937& random) {
    Bytes values(static_cast<size_t>(bytes({operand.dtype, operand.shape})));
    std::uniform_real_distribution<double> uniform(operand.low, operand.high);
    for (size_t i = 0; i < values.size(); i += size_of(operand.dtype)) {
      const double value = uniform(random);
      const auto put = [&](auto x) { std::memcpy(&values[i], &x, sizeof x); };
      switch (operand.dtype) {
        case DType::i32:
          put(static_cast<int32_t>(std::floor(value)));
          break;
        case DType::boolean:
          put(static_cast<uint8_t>(value > 0));
          break;
        default:
          put(static_cast<float>(value));
      }
    }
    return values;
  }

  // The largest difference, relative to the largest value. NaN is equal to NaN.
  static double error(const Bytes& wanted, const Bytes& got) {
    double difference = 0, largest = 1e-30;
    for (size_t i = 0; i < wanted.size(); i += sizeof(float)) {
      float a = 0, b = 0;
      std::memcpy(&a, &wanted[i], sizeof a);
      std::memcpy(&b, &got[i], sizeof b);
      if (std::isnan(a) && std::isnan(b)) continue;
      if (a == b) {
        largest = std::isinf(a) ? largest : std::max(largest, std::abs(double{a}));
        continue;
      }
      if (!std::isfinite(a) || !std::isfinite(b)) return 1e9;
      difference = std::max(difference, std::abs(double{a} - double{b}));
      largest = std::max(largest, std::abs(double{a}));
    }
    return difference / largest;
  }

  // Copies elements from plain to physical order, or back.
  static Bytes reordered(const Bytes& from, const TensorType& type, const Layout& layout,
                         bool to_physical) {
    if (layout.plain()) return from;
    const Geometry geometry = physical_geometry(layout, dense(type.shape));
    const size_t size = size_of(type.dtype);
    Bytes to(from.size());
    std::vector<int64_t> index(geometry.shape.size());
    for (int64_t i = 0; i < numel(geometry.shape); ++i) {
      int64_t plain = 0;
      for (size_t d = 0; d < index.size(); ++d) plain += index[d] * geometry.strides[d];
      const auto source = static_cast<size_t>(to_physical ? plain : i) * size;
      const auto target = static_cast<size_t>(to_physical ? i : plain) * size;
      std::memcpy(&to[target], &from[source], size);
      for (size_t d = index.size(); d-- > 0;) {
        if (++index[d] < geometry.shape[d]) break;
        index[d] = 0;
      }
    }
    return to;
  }

  static KernelOperand operand(const TensorType& type, const Layout& layout) {
    return {type.dtype, dense(physical_shape(layout, type.shape)), true, layout};
  }
  std::vector<KernelOperand> operands_of(bool physical) const {
    std::vector<KernelOperand> result;
    for (const TrialOperand& o : operands_) {
      result.push_back(operand({o.dtype, o.shape}, physical ? o.layout : Layout{}));
      result.back().present = o.present;
    }
    return result;
  }
  std::vector<KernelOperand> results_of(bool physical) const {
    std::vector<KernelOperand> result;
    for (size_t i = 0; i < results_.size(); ++i) {
      result.push_back(operand(results_[i], physical ? result_layouts_[i] : Layout{}));
    }
    return result;
  }
  KernelUse use_of(const std::vector<KernelOperand>& inputs,
                   const std::vector<KernelOperand>& outputs) const {
    return {row_, attrs_, inputs, outputs, target_for_test()};
  }

  std::vector<Bytes> run(const PreparedKernel& kernel, int threads, bool physical) const {
    ThreadPool pool(threads, level_for_test());
    const auto operands = operands_of(physical), results = results_of(physical);
    std::vector<Bytes> in, out;
    std::vector<TensorView> inputs, outputs;
    for (size_t i = 0; i < operands.size(); ++i) {
      in.push_back(reordered(values_[i], {operands_[i].dtype, operands_[i].shape},
                             operands[i].layout, true));
      inputs.push_back({in[i].data(), operands[i].dtype, operands[i].geometry.shape,
                        operands[i].geometry.strides, operands[i].present});
    }
    for (size_t i = 0; i < results.size(); ++i) {
      out.emplace_back(static_cast<size_t>(bytes(results_[i])), std::byte{0xff});
      outputs.push_back({out[i].data(), results[i].dtype, results[i].geometry.shape,
                         results[i].geometry.strides, true});
    }
    const KernelCall call{
        .inputs = inputs, .outputs = outputs, .attrs = attrs_, .pool = pool, .rng = {}};
    run_kernel_of(choice_, kernel, call);
    for (size_t i = 0; i < results.size(); ++i) {
      out[i] = reordered(out[i], results_[i], results[i].layout, false);
    }
    return out;
  }

  const OpDef& row_;
  Attrs attrs_;
  std::vector<TrialOperand> operands_;
  std::vector<Bytes> values_;
  std::vector<TensorType> results_;
  std::vector<Layout> result_layouts_;
  KernelChoice choice_;
};

}  // namespace tessera::cpu
