#include "tessera/torch/aten_facts.h"

#include <unordered_map>

#include "tessera/torch/compat.h"

namespace tessera {
namespace {

constexpr AtenFacts table[] = {
    // Views.
    {.name = "_unsafe_view", .aliases = true},
    {.name = "unsafe_split.Tensor", .aliases = true},
    {.name = "unsafe_split_with_sizes", .aliases = true},
    {.name = "lift", .aliases = true},
    {.name = "detach_", .aliases = true},

    // Factories.
    {.name = "empty.memory_format", .leaves_unset = true},
    {.name = "empty.names", .versions = {.last = 213}, .leaves_unset = true},
    {.name = "empty.names_out", .versions = {.last = 213}, .leaves_unset = true},
    {.name = "empty.out", .leaves_unset = true},
    {.name = "empty_quantized", .leaves_unset = true},
    {.name = "empty_quantized.out", .leaves_unset = true},
    {.name = "empty_strided", .leaves_unset = true},
    {.name = "empty_strided.out", .leaves_unset = true},
    {.name = "empty_like", .reads_sizes_only = true, .leaves_unset = true},
    {.name = "empty_like.out", .leaves_unset = true},
    {.name = "new_empty", .reads_sizes_only = true, .leaves_unset = true},
    {.name = "new_empty.out", .leaves_unset = true},
    {.name = "new_empty_strided", .reads_sizes_only = true, .leaves_unset = true},
    {.name = "new_empty_strided.out", .leaves_unset = true},
    {.name = "zeros_like", .reads_sizes_only = true},
    {.name = "ones_like", .reads_sizes_only = true},
    {.name = "full_like", .reads_sizes_only = true},
    {.name = "new_zeros", .reads_sizes_only = true},
    {.name = "new_ones", .reads_sizes_only = true},
    {.name = "new_full", .reads_sizes_only = true},

    // Known on devices with memory only, in a process without PyTorch's rules in Python.
    {.name = "convolution", .lacks_meta_rule = true},
    {.name = "convolution_backward", .lacks_meta_rule = true},

    // Copies.
    {.name = "clone", .movement = Movement::clone},
    {.name = "_to_copy", .movement = Movement::clone},
    {.name = "copy_", .movement = Movement::copy_into},
    {.name = "zero_", .movement = Movement::fill},
    {.name = "fill_.Scalar", .movement = Movement::fill},
    {.name = "fill_.Tensor", .movement = Movement::copy_into},

    // 2.15 has the later name; where a schema has the earlier one, that is taken.
    {.name = "_cdist_backward", .renamed = "grad=grad_output"},

    // Changed in secret: statistics of a training step, and the noise that was drawn.
    {.name = "native_batch_norm", .secret_writes = "running_mean, running_var"},
    {.name = "native_batch_norm.out", .secret_writes = "running_mean, running_var"},
    {.name = "rrelu_with_noise", .versions = {.last = 205}, .secret_writes = "noise"},
    {.name = "rrelu_with_noise.out", .versions = {.last = 205}, .secret_writes = "noise"},
    {.name = "rrelu_with_noise_", .versions = {.last = 205}, .secret_writes = "noise"},

    // Values and sizes that only a run knows.
    {.name = "is_nonzero", .values = ValueDependence::always},
    {.name = "index.Tensor",  // which takes a mask's places
     .values = ValueDependence::for_masks,
     .refused_as = "aten::nonzero"},
    {.name = "_local_scalar_dense", .asked_as = ".item()"},
    {.name = "bincount", .counts_values = true},
    {.name = "bincount.out", .counts_values = true},
    {.name = "_unique", .counts_values = true},
    {.name = "_unique.out", .counts_values = true},
    {.name = "_unique2", .counts_values = true, .caught_whole = true},
    {.name = "_unique2.out", .counts_values = true},
    {.name = "unique_dim", .counts_values = true},
    {.name = "unique_dim.out", .counts_values = true},
    {.name = "unique_consecutive", .counts_values = true},
    {.name = "unique_consecutive.out", .counts_values = true},
    {.name = "unique_dim_consecutive", .counts_values = true},
    {.name = "unique_dim_consecutive.out", .counts_values = true},

    // Losses. What PyTorch calls one is no property of its schema.
    {.name = "l1_loss", .loss = true},
    {.name = "mse_loss", .loss = true},
    {.name = "nll_loss", .loss = true},
    {.name = "nll_loss_nd", .loss = true},
    {.name = "nll_loss2d", .loss = true},
    {.name = "binary_cross_entropy", .loss = true},
    {.name = "poisson_nll_loss", .loss = true},
    {.name = "hinge_embedding_loss", .loss = true},
    {.name = "smooth_l1_loss", .loss = true},
    {.name = "huber_loss", .weights = "target", .promotes_inside = true, .loss = true},
    {.name = "soft_margin_loss", .loss = true},
    {.name = "cosine_embedding_loss", .loss = true},
    {.name = "margin_ranking_loss", .loss = true},
    {.name = "triplet_margin_loss", .loss = true},
    {.name = "multi_margin_loss", .loss = true},
    {.name = "multilabel_margin_loss", .loss = true},
    {.name = "kl_div", .loss = true, .caught_whole = true},
    {.name = "binary_cross_entropy_with_logits", .loss = true, .caught_whole = true},
    {.name = "cross_entropy_loss", .loss = true, .caught_whole = true},
    {.name = "ctc_loss.Tensor", .loss = true, .caught_whole = true},
    {.name = "ctc_loss.IntList", .loss = true, .caught_whole = true},

    // Operators whose parts, or whose derivatives, look at values.
    {.name = "max", .caught_whole = true},
    {.name = "min", .caught_whole = true},
    {.name = "median", .caught_whole = true},
    {.name = "nanmedian", .caught_whole = true},
    {.name = "prod", .caught_whole = true},
    {.name = "prod.dim_int", .caught_whole = true},
    {.name = "cumprod", .caught_whole = true},
    {.name = "scatter_reduce.two", .caught_whole = true},
    {.name = "index_reduce", .caught_whole = true},
    {.name = "masked_fill.Tensor", .caught_whole = true},
    {.name = "masked_fill_.Tensor", .caught_whole = true},
    {.name = "masked_scatter", .caught_whole = true},
    {.name = "masked_scatter_", .caught_whole = true},
    {.name = "one_hot", .caught_whole = true},
    {.name = "_pack_padded_sequence", .caught_whole = true},
    {.name = "_nested_tensor_from_mask_left_aligned", .caught_whole = true},
    {.name = "fused_moving_avg_obs_fake_quant", .caught_whole = true},

    // Operators that PyTorch takes apart into very many; and the quotient that a loss may end with.
    {.name = "lstm.input", .caught_whole = true},
    {.name = "gru.input", .caught_whole = true},
    {.name = "rnn_tanh.input", .caught_whole = true},
    {.name = "rnn_relu.input", .caught_whole = true},
    {.name = "div.Scalar", .caught_whole = true},

    // Layers, whose result has the type of their input, whatever that of their weights.
    {.name = "conv1d", .weights = "weight, bias"},
    {.name = "conv2d", .weights = "weight, bias"},
    {.name = "conv3d", .weights = "weight, bias"},
    {.name = "conv1d.padding", .weights = "weight, bias"},
    {.name = "conv2d.padding", .weights = "weight, bias"},
    {.name = "conv3d.padding", .weights = "weight, bias"},
    {.name = "conv_transpose1d", .weights = "weight, bias"},
    {.name = "conv_transpose2d.input", .weights = "weight, bias"},
    {.name = "conv_transpose3d.input", .weights = "weight, bias"},
    {.name = "batch_norm", .weights = "weight, bias"},
    {.name = "instance_norm", .weights = "weight, bias"},
    {.name = "layer_norm", .weights = "weight, bias"},
    {.name = "group_norm", .weights = "weight, bias"},
    {.name = "linear", .weights = "weight, bias", .promotes_inside = true},

    // The same of what is put into another tensor.
    {.name = "slice_scatter", .weights = "src"},
    {.name = "select_scatter", .weights = "src"},
    {.name = "diagonal_scatter", .weights = "src"},

    // For which PyTorch chooses among kernels of its own, each with a derivative of its own.
    {.name = "scaled_dot_product_attention", .versions = {.first = 200}, .caught_whole = true},

    // What rows know and only some versions have.
    {.name = "_native_batch_norm_legit_functional", .versions = {.first = 200}},
    {.name = "_native_batch_norm_legit_no_training", .versions = {.first = 200}},
    {.name = "prelu_backward", .versions = {.last = 113}},
    {.name = "_prelu_kernel", .versions = {.first = 200}},
    {.name = "_prelu_kernel_backward", .versions = {.first = 200}},
    {.name = "upsample_nearest1d_backward.vec", .versions = {.last = 113}},
    {.name = "upsample_nearest2d_backward.vec", .versions = {.last = 113}},
    {.name = "upsample_nearest3d_backward.vec", .versions = {.last = 113}},
    {.name = "_upsample_nearest_exact1d_backward.vec", .versions = {.last = 113}},
    {.name = "_upsample_nearest_exact2d_backward.vec", .versions = {.last = 113}},
    {.name = "_upsample_nearest_exact3d_backward.vec", .versions = {.last = 113}},
    {.name = "upsample_linear1d_backward.vec", .versions = {.last = 113}},
    {.name = "upsample_bilinear2d_backward.vec", .versions = {.last = 113}},
    {.name = "upsample_trilinear3d_backward.vec", .versions = {.last = 113}},
    {.name = "upsample_bicubic2d_backward.vec", .versions = {.last = 113}},
};

constexpr std::string_view python_losses[] = {
    "kl_div",
    "gaussian_nll_loss",
    "multilabel_soft_margin_loss",
    "triplet_margin_with_distance_loss",
};

std::unordered_map<std::string_view, const AtenFacts*> rows_by_name() {
  std::unordered_map<std::string_view, const AtenFacts*> rows;
  for (const AtenFacts& row : table) {
    if (row.versions.include(compat::torch_version)) rows.emplace(row.name, &row);
  }
  return rows;
}

}  // namespace

std::span<const AtenFacts> aten_facts() { return table; }

const AtenFacts& facts_of(std::string_view overload) {
  static const auto rows = rows_by_name();
  static constexpr AtenFacts none = {};
  constexpr std::string_view space = "aten::";
  if (overload.starts_with(space)) overload.remove_prefix(space.size());
  const auto row = rows.find(overload);
  return row == rows.end() ? none : *row->second;
}

bool is_named(std::string_view names, std::string_view name) {
  for (std::string_view rest = names; !rest.empty();) {
    const size_t comma = rest.find(", ");
    if (rest.substr(0, comma) == name) return true;
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 2);
  }
  return false;
}

std::string_view later_name(const AtenFacts& facts, std::string_view argument) {
  const size_t equals = facts.renamed.find('=');
  const bool renamed = !argument.empty() && facts.renamed.substr(0, equals) == argument;
  return renamed ? facts.renamed.substr(equals + 1) : std::string_view();
}

bool is_gradient(std::string_view name) { return name.find("backward") != std::string_view::npos; }

std::span<const std::string_view> losses_in_python() { return python_losses; }

}  // namespace tessera
