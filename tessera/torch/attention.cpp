#include "tessera/torch/attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "tessera/base/error.h"

namespace tessera::static_forms {
namespace {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

// [..., heads, length, size] with each head `times` times, one after the other.
at::Tensor repeated_heads(const at::Tensor& x, int64_t times) {
  if (times == 1) return x;
  auto sizes = x.sizes().vec();
  sizes.insert(sizes.end() - 2, times);
  return x.unsqueeze(-3).expand(sizes).flatten(-4, -3);
}

int64_t heads_sharing_one(const at::Tensor& query, const at::Tensor& key) {
  check(
      query.dim() >= 3 && key.dim() >= 3 && query.size(-3) % key.size(-3) == 0, ErrorKind::value,
      "scaled_dot_product_attention: with enable_gqa the {} heads of the query must be a multiple "
      "of the {} heads of the key",
      query.dim() >= 3 ? query.size(-3) : 1, key.dim() >= 3 ? key.size(-3) : 1);
  return query.size(-3) / key.size(-3);
}

// What is added to the scores of a query, and which queries have nothing to look at. The softmax of
// nothing but minus infinities is no number, and neither is its derivative: these rows are not
// masked, and have zeros instead of weights.
struct Masks {
  at::Tensor added, seen;
  at::Tensor idle;  // queries, undefined where each has something to look at
};

Masks masks_of(const Attention& given) {
  if (given.is_causal) {
    const auto truth = at::TensorOptions().dtype(at::kBool);
    return {{}, at::ones({given.query.size(-2), given.key.size(-2)}, truth).tril(), {}};
  }
  if (!given.mask.defined()) return {};
  const auto type = given.mask.scalar_type();
  check(type == at::kBool || type == at::kFloat || type == given.query.scalar_type(),
        ErrorKind::type,
        "scaled_dot_product_attention: Expected attn_mask dtype to be bool or float or to match "
        "query dtype, but got attn_mask.dtype: {}",
        c10::toString(type));
  if (type == at::kBool) {
    const at::Tensor idle = given.mask.any(-1, true).logical_not();
    return {{}, given.mask.logical_or(idle), idle};
  }
  const at::Tensor idle = given.mask.eq(minus_infinity).all(-1, true);
  return {given.mask.masked_fill(idle, 0), {}, idle};
}

}  // namespace

at::Tensor attention(const Attention& given) {
  check(!given.is_causal || !given.mask.defined(), ErrorKind::value,
        "scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True");
  const int64_t times = given.shares_heads ? heads_sharing_one(given.query, given.key) : 1;
  const double scale =
      given.scale.value_or(1 / std::sqrt(static_cast<double>(given.query.size(-1))));
  const Masks masks = masks_of(given);
  const at::Tensor keys = repeated_heads(given.key, times).transpose(-2, -1);
  at::Tensor scores = at::matmul(given.query * scale, keys);
  if (masks.added.defined()) scores = scores + masks.added;
  if (masks.seen.defined()) scores = scores.masked_fill(masks.seen.logical_not(), minus_infinity);
  at::Tensor weights = at::softmax(scores, -1);
  if (masks.idle.defined()) weights = weights.masked_fill(masks.idle, 0);
  if (given.dropout > 0) weights = at::dropout(weights, given.dropout, true);
  return at::matmul(weights, repeated_heads(given.value, times));
}

}  // namespace tessera::static_forms
