// Half precision is a way to store numbers, not to compute with them: an operator computes in f32
// and rounds once, where it stores a result. Here that becomes part of the graph: around every
// operator that computes, operands of f16 are cast to f32 and its results back. What only moves
// elements, or looks at memory in another way, moves halves.
//
// The exception are sums of products of halves, where the node or the program asks for it: such
// contractions are told to keep them in halves (ops/partials.h).
//
// These, and the casts to f16, are where a program rounds: to the nearest half, or by chance. In
// the latter case each gets a key of its own, in the order of the nodes, so that it draws the same
// numbers whatever is done to the graph later.
#pragma once

#include "tessera/base/dtype.h"
#include "tessera/ir/graph.h"

namespace tessera {

enum class Rounding { nearest, stochastic };

// What a program does with halves.
struct HalfArithmetic {
  Rounding rounding = Rounding::nearest;
  // What sums of products are kept in where a node does not say it: f32 or f16.
  DType matmul_partials = DType::f32, convolution_partials = DType::f32;
};

void compute_in_single(Graph& graph, const HalfArithmetic& halves = {});

}  // namespace tessera
