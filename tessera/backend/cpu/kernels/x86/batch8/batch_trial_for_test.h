// Runs one kernel on random operands in given layouts, and the operator's reference kernel on the
// same operands row-major beside it.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "tessera/backend/cpu/kernels/run_kernel_for_test.h"
#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/backend/cpu/target_for_test.h"
#include "tessera/base/cpu_level_for_test.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {

class BatchTrial {
 public:
  using Words = std::vector<float>;  // 4 bytes each, whatever they mean

  struct Operand {
    Shape shape = {};  // empty: left out
    Layout layout = {};
    DType dtype = DType::f32;
    Words values = {};     // random where empty
    Strides strides = {};  // of a plain operand that is not row-major; values are as in memory
  };

  // Layouts of the results; plain where there are fewer.
  BatchTrial(std::string_view op_name, std::vector<Operand> operands, Attrs attrs,
             std::vector<Layout> results)
      : row_(op(op_name)), attrs_(completed(row_, std::move(attrs))) {
    std::mt19937 random(3);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<std::optional<TensorType>> types;
    for (Operand& operand : operands) {
      const bool present = !operand.shape.empty();
      types.push_back(present ? std::optional(TensorType{operand.dtype, operand.shape})
                              : std::nullopt);
      Geometry logical = dense(operand.shape);
      if (!operand.strides.empty()) logical.strides = operand.strides;
      if (present && operand.values.empty()) {
        operand.values.resize(static_cast<size_t>(numel(operand.shape)));
        for (float& value : operand.values) value = uniform(random);
      }
      plain_.push_back({operand.dtype, logical, present});
      inputs_.push_back({operand.dtype,
                         present && !operand.layout.plain()
                             ? dense(physical_shape(operand.layout, operand.shape))
                             : logical,
                         present, operand.layout});
      plain_memory_.push_back(operand.values);
      memory_.push_back(present ? packed(operand.layout, operand.shape, operand.values)
                                : operand.values);
    }
    const auto inferred = infer(row_, types, attrs_);
    results.resize(inferred.size());
    for (size_t i = 0; i < inferred.size(); ++i) {
      const DType dtype = inferred[i].dtype == DType::f32 ? DType::f32 : DType::i32;
      result_shapes_.push_back(inferred[i].shape);
      plain_outputs_.push_back({dtype, dense(inferred[i].shape), true});
      outputs_.push_back(
          {dtype, dense(physical_shape(results[i], inferred[i].shape)), true, results[i]});
    }
    choice_ = choose_kernel({row_, attrs_, inputs_, outputs_, target_for_test()});
  }

  const std::string& kernel() const { return choice_.name; }
  const PreparedKernel& prepared() const { return *choice_.kernel; }

  // Row-major, whatever the layouts are.
  std::vector<Words> result(int threads) const {
    auto results = run(*choice_.kernel, threads, inputs_, memory_, outputs_);
    for (size_t i = 0; i < results.size(); ++i) {
      results[i] = unpacked(outputs_[i].layout, result_shapes_[i], results[i]);
    }
    return results;
  }
  std::vector<Words> expected() const {
    return run(*reference_kernel(row_).kernel, 1, plain_, plain_memory_, plain_outputs_);
  }

  // The largest difference of a result, relative to its largest value.
  double error() const {
    const auto wanted = expected(), got = result(1);
    double worst = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (outputs_[i].dtype != DType::f32) {
        if (std::memcmp(wanted[i].data(), got[i].data(), wanted[i].size() * sizeof(float)) != 0) {
          return 1e9;
        }
        continue;
      }
      double difference = 0, largest = 1e-6;
      for (size_t j = 0; j < wanted[i].size(); ++j) {
        if (std::isnan(wanted[i][j]) && std::isnan(got[i][j])) continue;
        if (std::isnan(wanted[i][j]) || std::isnan(got[i][j])) return 1e9;
        difference = std::max(difference, std::abs(double{wanted[i][j]} - double{got[i][j]}));
        largest = std::max(largest, std::abs(double{wanted[i][j]}));
      }
      worst = std::max(worst, difference / largest);
    }
    return worst;
  }

  bool same_bits_for_any_threads() const {
    const auto one = result(1);
    for (const int threads : {2, 3}) {
      const auto other = result(threads);
      for (size_t i = 0; i < one.size(); ++i) {
        if (std::memcmp(one[i].data(), other[i].data(), one[i].size() * sizeof(float)) != 0) {
          return false;
        }
      }
    }
    return true;
  }

 private:
  // Calls visit(place in the layout's order, place in row-major order) for every element.
  static void for_each_place(const Layout& layout, const Shape& shape,
                             const std::function<void(size_t, size_t)>& visit) {
    const Geometry physical = physical_geometry(layout, dense(shape));
    Shape at(physical.shape.size(), 0);
    for (int64_t i = 0; i < numel(shape); ++i) {
      int64_t logical = 0;
      for (size_t d = 0; d < at.size(); ++d) logical += at[d] * physical.strides[d];
      visit(static_cast<size_t>(i), static_cast<size_t>(logical));
      for (size_t d = at.size(); d-- > 0;) {
        if (++at[d] < physical.shape[d]) break;
        at[d] = 0;
      }
    }
  }
  static Words packed(const Layout& layout, const Shape& shape, const Words& values) {
    Words out(values.size());
    if (layout.plain()) return values;
    for_each_place(layout, shape, [&](size_t to, size_t from) { out[to] = values[from]; });
    return out;
  }
  static Words unpacked(const Layout& layout, const Shape& shape, const Words& values) {
    Words out(values.size());
    for_each_place(layout, shape, [&](size_t from, size_t to) { out[to] = values[from]; });
    return out;
  }

  std::vector<Words> run(const PreparedKernel& kernel, int threads,
                         const std::vector<KernelOperand>& operands,
                         const std::vector<Words>& memory,
                         const std::vector<KernelOperand>& results) const {
    ThreadPool pool(threads, level_for_test());
    std::vector<TensorView> inputs, outputs;
    for (size_t i = 0; i < operands.size(); ++i) {
      inputs.push_back({reinterpret_cast<std::byte*>(const_cast<float*>(memory[i].data())),
                        operands[i].dtype, operands[i].geometry.shape, operands[i].geometry.strides,
                        operands[i].present});
    }
    std::vector<Words> out;
    for (const auto& result : results) {
      out.emplace_back(static_cast<size_t>(numel(result.geometry.shape)), NAN);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      outputs.push_back({reinterpret_cast<std::byte*>(out[i].data()), results[i].dtype,
                         results[i].geometry.shape, results[i].geometry.strides});
    }
    const KernelCall call{
        .inputs = inputs, .outputs = outputs, .attrs = attrs_, .pool = pool, .rng = {}};
    run_kernel_of(choice_, kernel, call);
    return out;
  }

  const OpDef& row_;
  Attrs attrs_;
  std::vector<KernelOperand> plain_, inputs_, outputs_, plain_outputs_;
  std::vector<Shape> result_shapes_;
  std::vector<Words> plain_memory_, memory_;
  KernelChoice choice_;
};

}  // namespace tessera::cpu
