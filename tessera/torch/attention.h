// Attention put together from products and a softmax, which have rows and derivatives.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace tessera::static_forms {

struct Attention {
  at::Tensor query, key, value;
  at::Tensor mask;  // undefined where there is none; of booleans: what is looked at
  double dropout = 0;
  bool is_causal = false;
  std::optional<double> scale = {};  // 1 / sqrt(size of a query) where it is not given
  bool shares_heads = false;  // keys and values have fewer heads, each for a group of queries'
};

// A query that may look at nothing gets zeros.
at::Tensor attention(const Attention& given);

}  // namespace tessera::static_forms
