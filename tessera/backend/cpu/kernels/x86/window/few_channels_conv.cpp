// Convolutions of few channels, over images in batch_layout or plain ones: see window_sums_code.h
// and window_grad_code.h. Weights and their gradients are plain. Pieces are images (or groups of
// eight), blocks of channels, and rows.
#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "tessera/backend/cpu/kernels/x86/batch8/batch8.h"
#include "tessera/backend/cpu/kernels/x86/window/grad_code.h"
#include "tessera/backend/cpu/kernels/x86/window/sums_kernel.h"
#include "tessera/base/divided_up.h"

namespace tessera::cpu {
namespace {

constexpr int64_t most_kernel = 7;

std::array<int64_t, 2> pair_of(const Attrs& attrs, std::string_view name) {
  const auto& values = attrs.integers(name);
  return {values.front(), values.back()};
}

// A convolution over two dimensions, whichever of its three tensors is computed.
struct Conv2d {
  WindowLanes lanes_of;
  int64_t images, in, out;  // images: groups of eight in batch_layout
  std::array<int64_t, 2> input, output, kernel, stride, padding;

  // Shapes [N, C, H, W] or [N/8, C, H, W, 8].
  Conv2d(const Attrs& attrs, const Shape& input_shape, const Shape& weight,
         const Shape& output_shape)
      : lanes_of{input_shape.size() == 4},
        images(input_shape[0]),
        in(weight[1]),
        out(weight[0]),
        input{input_shape[2], input_shape[3]},
        output{output_shape[2], output_shape[3]},
        kernel{weight[2], weight[3]},
        stride(pair_of(attrs, "stride")),
        padding(pair_of(attrs, "padding")) {}

  int64_t pixel_floats() const { return lanes_of.pixel_bytes() / int64_t{sizeof(float)}; }
  int64_t input_plane() const { return input[0] * input[1] * pixel_floats(); }
  int64_t output_plane() const { return output[0] * output[1] * pixel_floats(); }

  WindowAxis forward_axis(size_t d) const {
    return {output[d], input[d], kernel[d], stride[d], padding[d], false};
  }
  WindowAxis backward_axis(size_t d) const {
    return {input[d], output[d], kernel[d], stride[d], padding[d], true};
  }
};

// What an entry computes.
enum class Sought { output, input_grad, weight_grad };

// Where the row's operands are: the convolution's input, weight and output.
struct Roles {
  size_t input, weight, output;  // places among operands and then results
  bool bias = false;
};

const KernelOperand& operand(const KernelUse& use, size_t i) {
  return i < use.inputs.size() ? use.inputs[i] : use.outputs[i - use.inputs.size()];
}

Roles roles_of(const KernelUse& use, Sought sought) {
  const size_t result = use.inputs.size();
  switch (sought) {
    case Sought::output:
      return {0, 1, result, use.has_input(2)};
    case Sought::input_grad:
      return {result, 1, 0};
    case Sought::weight_grad:
      return {1, result, 0};
  }
  return {};
}

Conv2d conv_of(const KernelUse& use, Sought sought) {
  const Roles roles = roles_of(use, sought);
  return {use.attrs, operand(use, roles.input).geometry.shape,
          operand(use, roles.weight).geometry.shape, operand(use, roles.output).geometry.shape};
}

bool has_plain_window(const Attrs& attrs) {
  const auto& dilation = attrs.integers("dilation");
  return attrs.integer("groups") == 1 &&
         std::all_of(dilation.begin(), dilation.end(), [](int64_t d) { return d == 1; });
}

bool has_small_kernel(const Shape& weight) {
  return weight.size() == 4 && weight[2] <= most_kernel && weight[3] <= most_kernel;
}

template <Sought sought>
bool batch8_applies(const KernelUse& use) {
  if (!has_plain_window(use.attrs)) return false;
  const Roles roles = roles_of(use, sought);
  return is_batch8(operand(use, roles.input), 4) && is_batch8(operand(use, roles.output), 4) &&
         is_plain_dense(operand(use, roles.weight)) &&
         has_small_kernel(operand(use, roles.weight).geometry.shape) &&
         (!roles.bias || is_plain_dense(use.inputs[2]));
}

// Where one vector is eight pixels of a row. oneDNN is as good with more channels.
template <Sought sought>
bool few_channels_applies(const KernelUse& use) {
  if (!has_plain_window(use.attrs)) return false;
  const Roles roles = roles_of(use, sought);
  for (const size_t i : {roles.input, roles.weight, roles.output}) {
    const KernelOperand& one = operand(use, i);
    if (one.geometry.shape.size() != 4 || !is_plain_dense(one)) return false;
    if (numel(one.geometry.shape) >= int64_t{1} << 28) return false;
  }
  const Shape& weight = operand(use, roles.weight).geometry.shape;
  if (!has_small_kernel(weight) || (roles.bias && !is_plain_dense(use.inputs[2]))) return false;
  const Conv2d conv = conv_of(use, sought);
  return conv.stride == std::array<int64_t, 2>{1, 1} && conv.in * conv.out <= 128 &&
         std::min(conv.in, conv.out) <= 8;
}

// Few channels, and images of which a group stays in the cache of a core.
bool is_better_than_others(const Conv2d& conv) {
  constexpr int64_t most_bytes = 1 << 20;
  const int64_t bytes =
      (conv.in * conv.input[0] * conv.input[1] + conv.out * conv.output[0] * conv.output[1]) *
      lane_bytes;
  return conv.in * conv.out <= 256 && conv.in <= 16 && std::min(conv.in, conv.out) < 16 &&
         bytes <= most_bytes;
}

template <Sought sought>
std::vector<Layout> wants(const KernelUse& use) {
  if (!has_plain_window(use.attrs)) return {};
  const Roles roles = roles_of(use, sought);
  for (const size_t i : {roles.input, roles.weight, roles.output}) {
    if (operand(use, i).geometry.shape.size() != 4 || operand(use, i).dtype != DType::f32) {
      return {};
    }
  }
  const auto& weight = operand(use, roles.weight);
  if (!has_small_kernel(weight.geometry.shape) || !is_plain_dense(weight)) return {};
  if (roles.bias && !is_plain_dense(use.inputs[2])) return {};
  if (!fits(batch_layout, operand(use, roles.input).geometry.shape)) return {};
  if (numel(operand(use, roles.output).geometry.shape) == 0) return {};
  if (!is_better_than_others(conv_of(use, sought))) return {};
  std::vector<Layout> layouts(use.inputs.size() + use.outputs.size(), plain_layout);
  layouts[roles.input] = layouts[roles.output] = batch_layout;
  return layouts;
}

std::unique_ptr<PreparedKernel> prepare_forward(const KernelUse& use) {
  const Conv2d conv = conv_of(use, Sought::output);
  WindowSums sums;
  sums.y = conv.forward_axis(0);
  sums.x = conv.forward_axis(1);
  sums.lanes = conv.lanes_of;
  sums.result_channels = conv.out;
  sums.source_channels = conv.in;
  sums.source_channel_stride = conv.kernel[0] * conv.kernel[1];
  sums.result_channel_stride = conv.in * sums.source_channel_stride;
  sums.bias = use.has_input(2);
  return std::make_unique<WindowSumsKernel>(sums, conv.images);
}

std::unique_ptr<PreparedKernel> prepare_input_grad(const KernelUse& use) {
  const Conv2d conv = conv_of(use, Sought::input_grad);
  WindowSums sums;
  sums.y = conv.backward_axis(0);
  sums.x = conv.backward_axis(1);
  sums.lanes = conv.lanes_of;
  sums.result_channels = conv.in;
  sums.source_channels = conv.out;
  sums.result_channel_stride = conv.kernel[0] * conv.kernel[1];
  sums.source_channel_stride = conv.in * sums.result_channel_stride;
  return std::make_unique<WindowSumsKernel>(sums, conv.images);
}

// The gradient by the weight. Images are cut in bands of rows; a piece sums over some bands, for
// some tiles: a block of output channels and one input channel each. Where bands are in several
// parts, their sums are added in order.
class WindowGradKernel : public PreparedKernel {
 public:
  explicit WindowGradKernel(const Conv2d& conv)
      : conv_(conv), blocks_(window_grad_blocks(conv.out, conv.kernel[1])) {
    const WindowGrad grad{conv.forward_axis(0), conv.forward_axis(1), conv.lanes_of};
    for (const int64_t channels : blocks_.channels) {
      auto& codes = codes_[channels];
      int64_t first = 0;
      for (const int64_t count : blocks_.elements) {
        if (codes.size() == blocks_.elements.size()) break;
        codes.push_back(std::make_unique<WindowGradCode>(grad, channels, first, count));
        first += count;
      }
    }
    first_channel_.resize(blocks_.channels.size());
    std::exclusive_scan(blocks_.channels.begin(), blocks_.channels.end(), first_channel_.begin(),
                        int64_t{0});
    for (int64_t k = 0; k < conv.kernel[0]; ++k) {
      int64_t begin = 0, end = conv.output[0];
      while (begin < end && grad.y.met(begin, k) == WindowAxis::none) ++begin;
      while (end > begin && grad.y.met(end - 1, k) == WindowAxis::none) --end;
      valid_rows_.push_back({begin, end});
    }
    cut();
  }

  int64_t workspace_bytes() const override {
    return (pieces() * sums_per_piece() + (parts_ > 1 ? parts_ * weights() : 0)) *
           int64_t{sizeof(float)};
  }

  void run(const KernelCall& call, std::span<std::byte> workspace) const override {
    auto* room = reinterpret_cast<float*>(workspace.data());
    auto* result = call.outputs[0].as<float>();
    float* partials = parts_ > 1 ? room + pieces() * sums_per_piece() : result;
    call.pool.run(pieces(), [&](int64_t piece) {
      run_piece(piece, call.inputs[0].as<const float>(), call.inputs[1].as<const float>(),
                room + piece * sums_per_piece(), partials);
    });
    if (parts_ == 1) return;
    for (int64_t i = 0; i < weights(); ++i) {
      float sum = partials[i];
      for (int64_t part = 1; part < parts_; ++part) sum += partials[part * weights() + i];
      result[i] = sum;
    }
  }

 private:
  struct Range {
    int64_t begin, end;
  };
  static Range cut_of(int64_t length, int64_t piece, int64_t pieces) {
    return {length * piece / pieces, length * (piece + 1) / pieces};
  }

  // Bands of which all channels stay in the cache of a core; few parts, so that there are few sums
  // to add; enough pieces for all threads.
  void cut() {
    constexpr int64_t cached_bytes = 128 << 10;
    constexpr int64_t most_parts = 16;
    if (conv_.lanes_of.of_a_row) {
      const int64_t bytes = conv_.out * conv_.output_plane() * int64_t{sizeof(float)};
      bands_ = std::clamp<int64_t>(bytes / cached_bytes, 1, conv_.output[0]);
      parts_ = std::min(most_parts, conv_.images * bands_);
      slices_ = std::min(tiles(), divided_up(wanted_pieces, parts_));
      return;
    }
    const int64_t per_part =
        std::max<int64_t>({1, std::min<int64_t>(4, conv_.images * tiles() / wanted_pieces),
                           divided_up(conv_.images, most_parts)});
    parts_ = divided_up(conv_.images, per_part);
    slices_ = tiles();
  }

  int64_t tiles() const { return std::ssize(blocks_.channels) * conv_.in; }
  int64_t pieces() const { return parts_ * slices_; }
  int64_t elements() const { return conv_.kernel[0] * conv_.kernel[1]; }
  int64_t weights() const { return conv_.out * conv_.in * elements(); }
  int64_t sums_per_tile() const { return blocks_.channels.front() * elements() * lanes; }
  int64_t sums_per_piece() const { return divided_up(tiles(), slices_) * sums_per_tile(); }

  size_t block_of(int64_t tile) const { return static_cast<size_t>(tile / conv_.in); }

  void run_piece(int64_t piece, const float* grads, const float* inputs, float* sums,
                 float* partials) const {
    const int64_t part = piece / slices_;
    const Range slice = cut_of(tiles(), piece % slices_, slices_);
    const Range band_range = cut_of(conv_.images * bands_, part, parts_);
    std::fill(sums, sums + (slice.end - slice.begin) * sums_per_tile(), 0.0F);
    for (int64_t band = band_range.begin; band < band_range.end; ++band) {
      const int64_t image = band / bands_;
      const Range rows = cut_of(conv_.output[0], band % bands_, bands_);
      for (int64_t tile = slice.begin; tile < slice.end; ++tile) {
        const int64_t out = first_channel_[block_of(tile)];
        add_rows(blocks_.channels[block_of(tile)], rows,
                 grads + (image * conv_.out + out) * conv_.output_plane(),
                 inputs + (image * conv_.in + tile % conv_.in) * conv_.input_plane(),
                 sums + (tile - slice.begin) * sums_per_tile());
      }
    }
    for (int64_t tile = slice.begin; tile < slice.end; ++tile) {
      const int64_t first = first_channel_[block_of(tile)] * conv_.in + tile % conv_.in;
      store(blocks_.channels[block_of(tile)], sums + (tile - slice.begin) * sums_per_tile(),
            partials + part * weights() + first * elements());
    }
  }

  // So few rows at a time that they stay in the fastest cache for all rows of the kernel.
  void add_rows(int64_t channels, Range rows, const float* grad, const float* input,
                float* sums) const {
    constexpr int64_t cached_bytes = 8192;
    const auto& codes = codes_.at(channels);
    const int64_t grad_row = conv_.output[1] * conv_.pixel_floats();
    const int64_t input_row = conv_.input[1] * conv_.pixel_floats();
    const int64_t step =
        std::max<int64_t>(1, cached_bytes / (channels * grad_row * int64_t{sizeof(float)}));
    for (int64_t row = rows.begin; row < rows.end; row += step) {
      float* to = sums;
      for (int64_t k = 0; k < conv_.kernel[0]; ++k) {
        const Range valid = valid_rows_[static_cast<size_t>(k)];
        const int64_t begin = std::max(row, valid.begin);
        const int64_t end = std::min({row + step, rows.end, valid.end});
        const int64_t met = begin * conv_.stride[0] - conv_.padding[0] + k;
        for (size_t e = 0; e < codes.size(); ++e) {
          if (begin < end) {
            (*codes[e])({grad + begin * grad_row, input + met * input_row, to, end - begin});
          }
          to += channels * blocks_.elements[e] * lanes;
        }
      }
    }
  }

  void store(int64_t channels, float* sums, float* to) const {
    add_up_lanes(sums, channels * elements(), sums);  // written behind where the next are read
    for (int64_t k = 0; k < conv_.kernel[0]; ++k) {
      int64_t first = k * conv_.kernel[1];
      for (const int64_t width : blocks_.elements) {
        for (int64_t c = 0; c < channels; ++c) {
          std::copy(sums, sums + width, to + c * conv_.in * elements() + first);
          sums += width;
        }
        first += width;
      }
    }
  }

  Conv2d conv_;
  WindowGradBlocks blocks_;
  std::vector<int64_t> first_channel_;
  std::vector<Range> valid_rows_;  // of the gradient, by kernel row
  std::map<int64_t, std::vector<std::unique_ptr<WindowGradCode>>> codes_;  // by block, elements
  int64_t bands_ = 1, parts_ = 1, slices_ = 1;
};

std::unique_ptr<PreparedKernel> prepare_weight_grad(const KernelUse& use) {
  return std::make_unique<WindowGradKernel>(conv_of(use, Sought::weight_grad));
}

}  // namespace

std::span<const KernelEntry> few_channels_conv_entries() {
  // clang-format off
  static constexpr KernelEntry entries[] = {
      {"conv", "batch8", batch8_applies<Sought::output>, prepare_forward, wants<Sought::output>},
      {"conv_input_grad", "batch8", batch8_applies<Sought::input_grad>, prepare_input_grad, wants<Sought::input_grad>},
      {"conv_weight_grad", "batch8", batch8_applies<Sought::weight_grad>, prepare_weight_grad, wants<Sought::weight_grad>},
      {"conv", "few_channels", few_channels_applies<Sought::output>, prepare_forward},
      {"conv_input_grad", "few_channels", few_channels_applies<Sought::input_grad>, prepare_input_grad},
      {"conv_weight_grad", "few_channels", few_channels_applies<Sought::weight_grad>, prepare_weight_grad},
  };
  // clang-format on
  return entries;
}

}  // namespace tessera::cpu
