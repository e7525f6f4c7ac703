#pragma once

#include <ATen/ATen.h>

#include <algorithm>

namespace tessera {

/// How far `a` is from `b`, in lengths of `b`.
inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const auto x = a.detach().to(at::kDouble), y = b.detach().to(at::kDouble);
  return (x - y).norm().item<double>() / std::max(y.norm().item<double>(), 1e-12);
}

}  // namespace tessera
