// Short names for the parts of which rows of the operator table are written: attributes and the
// operands of samples.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tessera/ops/op_def.h"

namespace tessera::row_parts {

using Ints = std::vector<int64_t>;

// Attributes: needed, or with the value they have when left out.
inline AttrSpec ints(std::string name) { return {std::move(name), AttrType::integers}; }
inline AttrSpec ints(std::string name, Ints fallback) {
  return {std::move(name), AttrType::integers, Attr(std::move(fallback))};
}
inline AttrSpec integer(std::string name) { return {std::move(name), AttrType::integer}; }
inline AttrSpec integer(std::string name, int64_t fallback) {
  return {std::move(name), AttrType::integer, Attr(fallback)};
}
inline AttrSpec number(std::string name) { return {std::move(name), AttrType::number}; }
inline AttrSpec number(std::string name, double fallback) {
  return {std::move(name), AttrType::number, Attr(fallback)};
}
inline AttrSpec numbers(std::string name) { return {std::move(name), AttrType::numbers}; }
inline AttrSpec flag(std::string name) { return {std::move(name), AttrType::boolean}; }
inline AttrSpec flag(std::string name, bool fallback) {
  return {std::move(name), AttrType::boolean, Attr(fallback)};
}
inline AttrSpec text(std::string name) { return {std::move(name), AttrType::text}; }
inline AttrSpec text(std::string name, std::string fallback) {
  return {std::move(name), AttrType::text, Attr(std::move(fallback))};
}
inline AttrSpec data_type(std::string name) { return {std::move(name), AttrType::dtype}; }
inline AttrSpec blob(std::string name) { return {std::move(name), AttrType::blob}; }
inline AttrSpec body(std::string name) { return {std::move(name), AttrType::body}; }

// May be left out without a value.
inline AttrSpec maybe(AttrSpec spec) {
  spec.optional = true;
  return spec;
}

// Its whole numbers may be larger than 32 bits hold: sizes and strides of whole tensors, which the
// rule checks before it multiplies them, and keys of random numbers.
inline AttrSpec large(AttrSpec spec) {
  spec.limit = std::numeric_limits<int64_t>::max();
  return spec;
}

inline AttrSchema joined(AttrSchema first, const AttrSchema& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

// A whole number as an attribute's value: a plain literal could also be a number or a flag.
inline Attr attr(int64_t value) { return value; }

// Values that samples of an operand are drawn from.
struct Domain {
  double low = -2, high = 2;
};

// Sample operands. Whatever the domain, bytes are not below 0 and bools are both true and false.
inline SampleOperand sample(DType dtype, Shape shape, Domain domain = {}) {
  if (dtype == DType::u8) domain.low = std::max(domain.low, 0.0);
  if (dtype == DType::boolean) domain = {0, 2};
  return {{dtype, std::move(shape)}, domain.low, domain.high};
}
inline SampleOperand reals(Shape shape, Domain domain = {}) {
  return sample(DType::f32, std::move(shape), domain);
}
inline SampleOperand integers(Shape shape, Domain domain = {}) {
  return sample(DType::i32, std::move(shape), domain);
}
inline SampleOperand booleans(Shape shape) { return sample(DType::boolean, std::move(shape)); }
inline SampleOperand left_out() { return {.type = {}, .present = false}; }

}  // namespace tessera::row_parts
