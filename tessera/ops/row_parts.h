// Short names for the parts of which rows of the operator table are written.
#pragma once

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
inline AttrSpec flag(std::string name) { return {std::move(name), AttrType::boolean}; }
inline AttrSpec flag(std::string name, bool fallback) {
  return {std::move(name), AttrType::boolean, Attr(fallback)};
}
inline AttrSpec maybe(AttrSpec spec) {
  spec.optional = true;
  return spec;
}

// Sample operands.
inline SampleOperand reals(Shape shape, double low = -2, double high = 2) {
  return {{DType::f32, std::move(shape)}, low, high};
}
inline SampleOperand integers(Shape shape, double low, double high, DType dtype = DType::i32) {
  return {{dtype, std::move(shape)}, low, high};
}
inline SampleOperand left_out() { return {.type = {}, .present = false}; }

inline Attr attr(int64_t value) { return value; }
inline Attr attr(Ints value) { return value; }

}  // namespace tessera::row_parts
