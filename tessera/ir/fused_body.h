// The program of a fused operator, as a node's attribute: steps, each a use of an element-wise
// operator, and which values are results. In the text of a graph it stands in braces:
//
//   {%0 = mul(a0, a1); %1 = gt(%0, 0.5) : bool; out %1, sum %0 over [0, 2, 3] keepdim}
//
// a0, a1, ... are the operands of the fused operator, %0, %1, ... the steps before. A step or a
// number is f32 unless it says otherwise: `: bool` behind a step, `i32(3.0)` for a number. A number
// has no dimensions; every step has the shape that all operands together broadcast to.
//
// What is here knows no operators: whether a step's operator exists and gives that type is for the
// operator table to say (ops/fused_body.h). A body that was read from text names only steps that
// stand before their use, and is no larger than the limits below.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/ir/attributes.h"

namespace tessera {

struct BodyValue {
  enum class From : uint8_t { operand, step, number };

  From from = From::operand;
  size_t index = 0;          // which operand or step
  double number = 0;         // of a constant
  DType dtype = DType::f32;  // of a constant

  bool operator==(const BodyValue& other) const;  // numbers by bits
};

struct BodyStep {
  std::string op;
  std::vector<BodyValue> arguments = {};
  Attrs attrs = {};
  DType dtype = DType::f32;  // of its elements

  bool operator==(const BodyStep&) const = default;
};

struct BodyResult {
  BodyValue value;  // an operand only where it is summed
  bool summed = false;
  std::vector<int64_t> dims = {};  // none: all
  bool keepdim = false;

  bool operator==(const BodyResult&) const = default;
};

struct FusedBody {
  static constexpr size_t most_steps = 256, most_arguments = 8, most_results = 64;
  static constexpr int64_t most_operands = 65536, most_dims = 64;

  std::vector<BodyStep> steps = {};
  std::vector<BodyResult> results = {};

  bool operator==(const FusedBody&) const = default;
};

inline Attr body_attr(FusedBody body) { return std::make_shared<const FusedBody>(std::move(body)); }

}  // namespace tessera
