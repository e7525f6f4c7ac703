// The families of operators. A new family is its file, one line here and one in registry.cpp.
#pragma once

#include <span>
#include <string_view>

#include "tessera/ops/op_def.h"

namespace tessera::families {

std::span<const OpDef> elementwise();
std::span<const OpDef> rounding();
std::span<const OpDef> activation();
std::span<const OpDef> reduce();
std::span<const OpDef> scan();
std::span<const OpDef> matmul();
std::span<const OpDef> conv();
std::span<const OpDef> norm();
std::span<const OpDef> rnn();
std::span<const OpDef> pool();
std::span<const OpDef> resample();
std::span<const OpDef> index();
std::span<const OpDef> view();
std::span<const OpDef> rearrange();
std::span<const OpDef> random();
std::span<const OpDef> loss();
std::span<const OpDef> nll_loss();
std::span<const OpDef> cross_entropy();
std::span<const OpDef> ctc();
std::span<const OpDef> optimizer();
std::span<const OpDef> host();
std::span<const OpDef> special();
std::span<const OpDef> order();
std::span<const OpDef> patches();
std::span<const OpDef> window();
std::span<const OpDef> distance();
std::span<const OpDef> margin_loss();
std::span<const OpDef> embedding_bag();
std::span<const OpDef> quantize();
std::span<const OpDef> random_forms();
std::span<const OpDef> tensor_product();
std::span<const OpDef> fused();
std::span<const OpDef> contraction_map();
std::span<const OpDef> of_halves();
std::span<const OpDef> guard();
std::span<const OpDef> collective();

// For rows that are made of others: the table cannot be asked while it is made.
const OpDef& row_of(std::span<const OpDef> family, std::string_view name);

}  // namespace tessera::families
