// Operators without a row run through PyTorch's own CPU kernels, at the node `aten`. This library
// does not link PyTorch: whoever does (tessera/torch) registers how such a node is run. Without
// that, a program that has such a node is refused before it starts.
#pragma once

#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/ops/kernel_call.h"

namespace tessera {

using HostCallRunner = void (*)(const KernelCall&);
void set_host_call_runner(HostCallRunner runner);

// Result types as the node holds them: "f32[2,3], -, i64[4]"; a result that PyTorch leaves
// undefined is a dash. Types are PyTorch's own, not narrowed.
std::string print_host_results(const std::vector<std::optional<TensorType>>& results);
std::vector<std::optional<TensorType>> parse_host_results(std::string_view text);

// The attributes of the same call on operands of which halves have become f32.
Attrs host_call_in_single(Attrs attrs);

// How often a program calls an overload.
struct HostCallCount {
  std::string overload;  // "aten::linalg_qr"
  int64_t nodes = 0;
};
std::vector<HostCallCount> host_calls(const Graph& graph);

// Whether a graph from a file may run that overload ("aten::linalg_qr"): a file may say anything.
bool may_be_in_file(std::string_view overload);
// Error where the graph calls another one.
void check_host_calls_of_file(const Graph& graph);

// Error where the graph calls PyTorch and nobody has registered how.
void check_host_calls_can_run(const Graph& graph);

}  // namespace tessera
