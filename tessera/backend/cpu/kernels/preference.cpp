#include "tessera/backend/cpu/kernels/preference.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <set>

#include "tessera/base/error.h"
#include "tessera/ops/contraction_map.h"
#include "tessera/ops/of_halves.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

struct Preference {
  std::string_view op;
  std::initializer_list<std::string_view> kernels;
};

// The first that applies is taken. A name that no entry has on this machine is passed over.
const Preference preferences[] = {
    // clang-format off
    // Convolutions: those that are at home in few channels first, then those that save products.
    {"conv", {"narrow", "batch8", "few_channels", "winograd_4", "winograd_2",
              "onednn_channels", "onednn_conv"}},
    {"conv_input_grad", {"narrow", "batch8", "few_channels", "winograd_4", "winograd_2",
                         "onednn_channels_input_grad", "onednn_conv_input_grad"}},
    {"conv_weight_grad", {"narrow", "batch8", "few_channels", "winograd_4", "winograd_2",
                          "onednn_channels_weight_grad", "onednn_conv_weight_grad"}},

    // Products. `batch8` follows its neighbours: where they have another layout than all others want.
    {"matmul", {"batch8", "packed", "onednn_matmul"}},
    {"matmul_map", {"batch8", "packed_linear", "packed", "onednn_matmul"}},
    {"sgd_of_product", {"avx2"}},
    {"adam_of_product", {"avx2"}},
    {"rmsprop_of_product", {"avx2"}},

    // Element-wise work and updates.
    {"map", {"generated", "interpreted"}},
    {"map_reduce", {"generated", "interpreted"}},
    {"bernoulli", {"avx2_bernoulli"}},
    {"sgd", {"avx2"}},
    {"adam", {"avx2"}},
    {"rmsprop", {"avx2"}},

    // Images.
    {"max_pool2d_with_indices", {"batch8", "avx2_max_pool"}},
    {"max_pool2d_with_indices_backward", {"batch8", "avx2_max_pool_backward"}},
    {"avg_pool2d", {"avx2_avg_pool"}},
    {"avg_pool2d_backward", {"avx2_avg_pool_backward"}},
    {"adaptive_avg_pool2d", {"avx2_avg_pool"}},
    {"adaptive_avg_pool2d_backward", {"avx2_avg_pool_backward"}},
    {"upsample_nearest2d", {"avx2_nearest"}},
    {"upsample_nearest2d_backward", {"avx2_nearest_backward"}},
    {"upsample_bilinear2d", {"avx2_bilinear"}},
    {"upsample_bilinear2d_backward", {"avx2_bilinear_backward"}},

    // Norms and sums.
    {"group_norm", {"batch8", "avx2_group_norm"}},
    {"group_norm_backward", {"batch8", "avx2_group_norm_backward"}},
    {"layer_norm", {"avx2_layer_norm"}},
    {"layer_norm_backward", {"avx2_layer_norm_backward"}},
    {"moments", {"avx2_moments"}},
    {"sum", {"batch8", "avx2_sum"}},
    {"mean", {"avx2_mean"}},

    // Those that first copy operands with other strides after those that need not.
    {"argmax", {"avx2_extremes", "copies_avx2_extremes"}},
    {"argmin", {"avx2_extremes", "copies_avx2_extremes"}},
    {"max", {"avx2_extremes", "copies_avx2_extremes"}},
    {"min", {"avx2_extremes", "copies_avx2_extremes"}},
    {"_softmax", {"avx2_softmax", "copies_avx2_softmax"}},
    {"_log_softmax", {"avx2_log_softmax", "copies_avx2_log_softmax"}},
    {"_softmax_backward_data", {"avx2_softmax_backward", "copies_avx2_softmax_backward"}},
    {"_log_softmax_backward_data", {"avx2_log_softmax_backward",
                                    "copies_avx2_log_softmax_backward"}},
    {"cross_entropy", {"avx2_cross_entropy", "copies_avx2_cross_entropy"}},
    {"cross_entropy_backward", {"avx2_cross_entropy_backward",
                                "copies_avx2_cross_entropy_backward"}},
    {"nll_loss_forward", {"avx2_nll_loss"}},
    {"nll_loss_backward", {"avx2_nll_loss_backward"}},
    {"nll_loss2d_forward", {"avx2_nll_loss", "copies_avx2_nll_loss"}},
    {"nll_loss2d_backward", {"avx2_nll_loss_backward", "copies_avx2_nll_loss_backward"}},

    {"cat", {"runs"}},
    // clang-format on
};

const Preference* find(std::string_view op) {
  const auto at = std::find_if(std::begin(preferences), std::end(preferences),
                               [&](const Preference& line) { return line.op == op; });
  return at == std::end(preferences) ? nullptr : at;
}

}  // namespace

std::span<const std::string_view> preferred_kernels(std::string_view op) {
  const Preference* line = find(op);
  // A contraction that goes on with a body: as the contraction, unless it has a line of its own. A
  // row of halves: as the row in f32.
  const OpDef* row = line ? nullptr : find_op(op);
  if (row && contraction_of_map(*row)) line = find(contraction_of_map(*row)->name);
  if (row && row_in_single(*row)) line = find(row_in_single(*row)->name);
  if (!line) return {};
  return {line->kernels.begin(), line->kernels.end()};
}

void sort_by_preference(std::vector<const KernelEntry*>& entries) {
  const auto place = [](const KernelEntry* entry) {
    const auto names = preferred_kernels(entry->op);
    const auto at = std::find(names.begin(), names.end(), entry->name);
    TESSERA_INVARIANT(at != names.end(), "kernel '{}' of '{}' has no place in preference.cpp",
                      entry->name, entry->op);
    return at - names.begin();
  };
  std::stable_sort(entries.begin(), entries.end(),
                   [&](const auto* a, const auto* b) { return place(a) < place(b); });
}

void check_kernel_name(std::string_view name, std::string_view variable) {
  std::set<std::string_view> known;
  for (const Preference& line : preferences) {
    known.insert(line.kernels.begin(), line.kernels.end());
  }
  if (known.contains(name)) return;
  // Those that begin alike, or contain one another.
  constexpr size_t alike = 4;
  std::vector<std::string_view> near;
  for (const std::string_view kernel : known) {
    const bool within = !name.empty() && (kernel.find(name) != std::string_view::npos ||
                                          name.find(kernel) != std::string_view::npos);
    if (within || kernel.substr(0, alike) == name.substr(0, alike)) near.push_back(kernel);
  }
  const std::string like =
      near.empty() ? "" : fmt::format("; similar names are {}", fmt::join(near, ", "));
  fail(ErrorKind::value,
       "{} must name fast kernels, got '{}'{}; `tessera ops NAME` prints those of an operator.",
       variable, name, like);
}

}  // namespace tessera::cpu
