// The program of a fused operator: steps, each a use of an element-wise row, and which values are
// results. As text it is written in the words of the operator table:
//
//   %0 = mul(a0, a1); %1 = add(%0, 0.5) {alpha = 2.0}; out %1, sum %0 over [0, 2, 3] keepdim
//
// a0, a1, ... are the operands of the fused operator, %0, %1, ... the steps before, a number is a
// constant of type f32 without dimensions. Attributes with their default values are left out. Every
// step has the shape that all operands together broadcast to.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ops/op_def.h"

namespace tessera {

struct BodyValue {
  enum class From : uint8_t { operand, step, number };

  From from = From::operand;
  size_t index = 0;   // which operand or step
  double number = 0;  // of a constant

  bool operator==(const BodyValue&) const = default;
};

struct BodyStep {
  const OpDef* row = nullptr;
  std::vector<BodyValue> arguments;
  Attrs attrs;  // complete
};

struct BodyResult {
  BodyValue value;  // an operand only where it is summed
  bool summed = false;
  std::vector<int64_t> dims = {};  // none: all
  bool keepdim = false;
};

struct Body {
  static constexpr size_t most_steps = 256;

  std::vector<BodyStep> steps;
  std::vector<BodyResult> results;
};

// Error where the text is not a body: an unknown row, one that is not element-wise or has several
// results, a value that is used before it is made, an attribute that the row does not have.
Body parse_body(std::string_view text);
std::string print(const Body& body);

// Types of the steps by their rows' own rules, 64-bit ones narrowed. Error where a rule refuses
// them, an operand does not exist, or a step is not of the common shape.
std::vector<TensorType> step_types(const Body& body, std::span<const TensorType> operands);
// Of the results; sums by the rule of the sum's row.
std::vector<TensorType> result_types(const Body& body, std::span<const TensorType> operands);

// By the row's own price.
double flops_per_element(const BodyStep& step);

// The row that sums are uses of, and its attributes for one result.
const OpDef& sum_row();
Attrs sum_attributes(const BodyResult& result);

}  // namespace tessera
