// How PyTorch lays out what a call makes: it decides whether a later flatten(), reshape() or
// contiguous() shares its memory, and so whether a change in place shows in both. PyTorch is asked.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <functional>
#include <vector>

#include "tessera/base/geometry.h"
#include "tessera/torch/aten_call.h"

namespace tessera {

// The geometries of the call's results, of the shapes given. `is_cheap` says that PyTorch's kernel
// may be tried, which is what knows best; `forget_error` is as for dry_run.
std::vector<Geometry> result_geometries(const AtenCall& call, const std::vector<Shape>& shapes,
                                        bool is_cheap, const std::function<void()>& forget_error);

// dry_run with PyTorch's strides, which its shape rules do not always know, for a call with few
// elements.
torch::jit::Stack laid_out_dry_run(const AtenCall& call, const std::function<void()>& forget_error);

// The geometry of a copy of `tensor` in that memory format (PyTorch's rule for empty_like).
Geometry copy_geometry(const at::Tensor& tensor, std::optional<at::MemoryFormat> format);

}  // namespace tessera
