#include "tessera/kernels/conv.h"

#include <algorithm>
#include <array>

#include "tessera/base/divided_up.h"
#include "tessera/base/error.h"
#include "tessera/base/scratch.h"
#include "tessera/kernels/gemm.h"

namespace tessera::kernels {
namespace {

using Extent = std::array<int64_t, 3>;

int64_t product(const Extent& e) { return e[0] * e[1] * e[2]; }

// The spatial part of a list as three numbers, missing outer ones filled in.
Extent spatial(std::span<const int64_t> values, size_t skip, int64_t missing) {
  Extent out{missing, missing, missing};
  const size_t count = values.size() - skip;
  TESSERA_INVARIANT(count >= 1 && count <= 3, "a convolution over {} dimensions", count);
  for (size_t i = 0; i < count; ++i) out[3 - count + i] = values[skip + i];
  return out;
}

struct Params {
  Extent stride, padding, dilation;

  explicit Params(const ConvParams& p)
      : stride(spatial(p.stride, 0, 1)),
        padding(spatial(p.padding, 0, 0)),
        dilation(spatial(p.dilation, 0, 1)) {}
};

// A tensor [batch, channels, field...] with its field as three dimensions.
struct Field {
  const float* data;
  int64_t batch, channels, batch_stride, channel_stride;
  Extent size, stride;

  explicit Field(const TensorView& t)
      : data(t.as<const float>()),
        batch(t.sizes[0]),
        channels(t.sizes[1]),
        batch_stride(t.strides[0]),
        channel_stride(t.strides[1]),
        size(spatial(t.sizes, 2, 1)),
        stride(spatial(t.strides, 2, 0)) {}
};

// For each kernel element and each position, per dimension, how far from the channel's start the
// element lies that they meet at; -1 where they meet at none.
struct Meeting {
  Extent kernel, positions;
  std::array<ScratchVector<int64_t>, 3> tables;

  template <typename Coordinate>
  Meeting(const Extent& kernel_size, const Extent& position_count, const Field& field,
          const Coordinate& coordinate)
      : kernel(kernel_size), positions(position_count) {
    for (size_t d = 0; d < 3; ++d) {
      for (int64_t k = 0; k < kernel[d]; ++k) {
        for (int64_t p = 0; p < positions[d]; ++p) {
          const int64_t at = coordinate(d, k, p);
          tables[d].push_back(at >= 0 && at < field.size[d] ? at * field.stride[d] : -1);
        }
      }
    }
  }

  const int64_t* row(size_t d, int64_t k) const { return tables[d].data() + k * positions[d]; }
};

Meeting forward_meeting(const Extent& kernel, const Extent& places, const Field& input,
                        const Params& p) {
  return {kernel, places, input, [&p](size_t d, int64_t k, int64_t place) {
            return place * p.stride[d] - p.padding[d] + k * p.dilation[d];
          }};
}

// Where a gradient lies that an input position contributed to through a kernel element.
Meeting backward_meeting(const Extent& kernel, const Extent& positions, const Field& grad,
                         const Params& p) {
  return {kernel, positions, grad, [&p](size_t d, int64_t k, int64_t position) {
            const int64_t scaled = position + p.padding[d] - k * p.dilation[d];
            return scaled % p.stride[d] == 0 ? scaled / p.stride[d] : -1;
          }};
}

Meeting identity_meeting(const Field& field) {
  return {{1, 1, 1}, field.size, field, [](size_t, int64_t, int64_t p) { return p; }};
}

// Kernel elements numbered row-major.
Extent split(int64_t index, const Extent& size) {
  return {index / (size[1] * size[2]), index / size[2] % size[1], index % size[2]};
}

// Positions of all images as lines; their depth is (kernel element, channel).
class PositionLines : public Lines {
 public:
  PositionLines(const Field& field, const Meeting& meeting, Range channels)
      : field_(field), meeting_(meeting), channels_(channels) {}

  void pack(Range lines, Range depth, int64_t width, float* to) const override {
    ScratchVector<Extent> places(static_cast<size_t>(width));
    ScratchVector<int64_t> image(static_cast<size_t>(width));
    ScratchVector<int64_t> offset(static_cast<size_t>(width));
    const int64_t per_image = product(meeting_.positions);
    for (int64_t first = lines.begin; first < lines.end; first += width) {
      const int64_t here = std::min(width, lines.end - first);
      for (int64_t j = 0; j < here; ++j) {
        const auto at = static_cast<size_t>(j);
        places[at] = split((first + j) % per_image, meeting_.positions);
        image[at] = (first + j) / per_image * field_.batch_stride;
      }
      int64_t k = depth.begin;
      while (k < depth.end) {
        const Extent element = split(k / channels_.count(), meeting_.kernel);
        const bool in_a_row = find_offsets(element, here, places, image, offset);
        const int64_t channel = k % channels_.count();
        const int64_t count = std::min(channels_.count() - channel, depth.end - k);
        const float* from = field_.data + (channels_.begin + channel) * field_.channel_stride;
        for (int64_t c = 0; c < count; ++c, to += width, from += field_.channel_stride) {
          if (in_a_row) {
            std::copy(from + offset[0], from + offset[0] + here, to);
          } else {
            for (int64_t j = 0; j < here; ++j) {
              const int64_t at = offset[static_cast<size_t>(j)];
              to[j] = at < 0 ? 0.0F : from[at];
            }
          }
          std::fill(to + here, to + width, 0.0F);
        }
        k += count;
      }
    }
  }

 private:
  bool find_offsets(const Extent& element, int64_t count, const ScratchVector<Extent>& places,
                    const ScratchVector<int64_t>& image, ScratchVector<int64_t>& offset) const {
    const int64_t* const rows[3] = {meeting_.row(0, element[0]), meeting_.row(1, element[1]),
                                    meeting_.row(2, element[2])};
    bool in_a_row = true;
    for (int64_t j = 0; j < count; ++j) {
      const auto i = static_cast<size_t>(j);
      const int64_t x = rows[0][places[i][0]];
      const int64_t y = rows[1][places[i][1]];
      const int64_t z = rows[2][places[i][2]];
      offset[i] = x < 0 || y < 0 || z < 0 ? -1 : image[i] + x + y + z;
      in_a_row &= offset[i] >= 0 && offset[i] == offset[0] + j;
    }
    return in_a_row;
  }

  const Field& field_;
  const Meeting& meeting_;
  Range channels_;
};

// (channel, kernel element) pairs as lines; their depth is the positions of all images.
class PatchLines : public Lines {
 public:
  PatchLines(const Field& field, const Meeting& meeting, int64_t first_channel)
      : field_(field), meeting_(meeting), first_channel_(first_channel) {}

  void pack(Range lines, Range depth, int64_t width, float* to) const override {
    for (int64_t first = lines.begin; first < lines.end; first += width) {
      for (int64_t j = 0; j < width; ++j) {
        if (first + j < lines.end) {
          pack_line(first + j, depth, width, to + j);
        } else {
          for (int64_t k = 0; k < depth.count(); ++k) to[k * width + j] = 0;
        }
      }
      to += width * depth.count();
    }
  }

 private:
  void pack_line(int64_t line, Range depth, int64_t width, float* to) const {
    const int64_t elements = product(meeting_.kernel);
    const Extent element = split(line % elements, meeting_.kernel);
    const int64_t channel = first_channel_ + line / elements;
    const int64_t per_image = product(meeting_.positions);
    const int64_t* last_row = meeting_.row(2, element[2]);
    int64_t k = depth.begin;
    while (k < depth.end) {  // one row of positions at a time
      const Extent place = split(k % per_image, meeting_.positions);
      const int64_t count = std::min(meeting_.positions[2] - place[2], depth.end - k);
      const int64_t x = meeting_.row(0, element[0])[place[0]];
      const int64_t y = meeting_.row(1, element[1])[place[1]];
      const float* from = field_.data + k / per_image * field_.batch_stride +
                          channel * field_.channel_stride + x + y;
      for (int64_t i = 0; i < count; ++i, to += width) {
        const int64_t z = last_row[place[2] + i];
        *to = x < 0 || y < 0 || z < 0 ? 0.0F : from[z];
      }
      k += count;
    }
  }

  const Field& field_;
  const Meeting& meeting_;
  int64_t first_channel_;
};

// One channel side of the weight as lines; their depth is (kernel element, other channel).
class WeightLines : public Lines {
 public:
  WeightLines(const float* data, int64_t line_stride, int64_t channel_stride, int64_t channels,
              const Extent& kernel, const Extent& kernel_stride)
      : data_(data),
        line_stride_(line_stride),
        channel_stride_(channel_stride),
        channels_(channels),
        kernel_(kernel),
        kernel_stride_(kernel_stride) {}

  void pack(Range lines, Range depth, int64_t width, float* to) const override {
    for (int64_t first = lines.begin; first < lines.end; first += width) {
      const int64_t here = std::min(width, lines.end - first);
      for (int64_t k = depth.begin; k < depth.end; ++k, to += width) {
        const Extent at = split(k / channels_, kernel_);
        const float* from = data_ + first * line_stride_ + k % channels_ * channel_stride_ +
                            at[0] * kernel_stride_[0] + at[1] * kernel_stride_[1] +
                            at[2] * kernel_stride_[2];
        for (int64_t j = 0; j < here; ++j) to[j] = from[j * line_stride_];
        std::fill(to + here, to + width, 0.0F);
      }
    }
  }

 private:
  const float* data_;
  int64_t line_stride_, channel_stride_, channels_;
  Extent kernel_, kernel_stride_;
};

// Copies a tile of (channel, position of any image) sums to where they lie in the result.
void store_tile(const float* tile, Range channels, Range positions, const float* bias,
                int64_t bias_stride, int64_t total_channels, int64_t per_image, float* out) {
  for (int64_t channel = channels.begin; channel < channels.end; ++channel) {
    const float* from = tile + (channel - channels.begin) * positions.count();
    const float add = bias ? bias[channel * bias_stride] : 0.0F;
    int64_t at = positions.begin;
    while (at < positions.end) {
      const int64_t image = at / per_image;
      const int64_t count = std::min((image + 1) * per_image, positions.end) - at;
      float* to = out + (image * total_channels + channel) * per_image + at % per_image;
      for (int64_t i = 0; i < count; ++i) to[i] = from[i] + add;
      from += count;
      at += count;
    }
  }
}

// The shared shape of conv and its input gradient: result channels (rows) by positions (columns),
// summed over kernel elements and source channels.
template <typename MakeLines>
void sum_over_windows(const Field& source, const Meeting& meeting, int64_t groups,
                      int64_t result_channels, const TensorView* bias, const TensorView& out,
                      ThreadPool& pool, const Partials& partials, const MakeLines& weight_lines) {
  const int64_t rows = result_channels / groups;
  const int64_t source_channels = source.channels / groups;
  const int64_t per_image = product(meeting.positions);
  const int64_t cols = source.batch * per_image;
  const int64_t depth = source_channels * product(meeting.kernel);
  const ProductTiles tiles(rows, cols, groups);
  pool.run(groups * tiles.count(), [&](int64_t piece) {
    thread_local std::vector<float> tile;
    const int64_t group = piece / tiles.count();
    const Range row_range = tiles.rows(piece % tiles.count(), rows);
    const Range col_range = tiles.cols(piece % tiles.count(), cols);
    const int64_t first = group * source_channels;
    const PositionLines positions(source, meeting, {first, first + source_channels});
    tile.resize(static_cast<size_t>(tiles.row_step * tiles.col_step));
    if (partials.half) {
      const HalfSums sums{partials, {depth, source_channels}, cols, group * rows * cols};
      multiply(weight_lines(group), row_range, positions, col_range, sums,
               {0, sums.blocks.stretches()}, tile.data(), col_range.count(), pool.level());
    } else {
      multiply(weight_lines(group), row_range, positions, col_range, {0, depth}, tile.data(),
               col_range.count(), pool.level());
    }
    const Range channels{group * rows + row_range.begin, group * rows + row_range.end};
    store_tile(tile.data(), channels, col_range, bias ? bias->as<const float>() : nullptr,
               bias ? bias->strides[0] : 0, result_channels, per_image, out.as<float>());
  });
}

}  // namespace

void conv(const TensorView& input, const TensorView& weight, const TensorView& bias,
          const ConvParams& params, const TensorView& out, ThreadPool& pool,
          const Partials& partials) {
  if (out.numel() == 0) return;
  const Field source(input);
  const Field filter(weight);
  const Meeting meeting =
      forward_meeting(filter.size, spatial(out.sizes, 2, 1), source, Params(params));
  const int64_t per_group = weight.sizes[0] / params.groups;
  sum_over_windows(source, meeting, params.groups, weight.sizes[0], bias.present ? &bias : nullptr,
                   out, pool, partials, [&](int64_t group) {
                     return WeightLines(filter.data + group * per_group * filter.batch_stride,
                                        filter.batch_stride, filter.channel_stride, filter.channels,
                                        filter.size, filter.stride);
                   });
}

void conv_input_grad(const TensorView& grad, const TensorView& weight, const ConvParams& params,
                     const TensorView& out, ThreadPool& pool, const Partials& partials) {
  if (out.numel() == 0) return;
  const Field source(grad);
  const Field filter(weight);
  const Meeting meeting =
      backward_meeting(filter.size, spatial(out.sizes, 2, 1), source, Params(params));
  const int64_t per_group = weight.sizes[0] / params.groups;
  sum_over_windows(source, meeting, params.groups, out.sizes[1], nullptr, out, pool, partials,
                   [&](int64_t group) {
                     return WeightLines(filter.data + group * per_group * filter.batch_stride,
                                        filter.channel_stride, filter.batch_stride, per_group,
                                        filter.size, filter.stride);
                   });
}

void conv_weight_grad(const TensorView& grad, const TensorView& input, const ConvParams& params,
                      const TensorView& out, ThreadPool& pool, const Partials& partials) {
  if (out.numel() == 0) return;
  const Field result(grad);
  const Field source(input);
  const Extent kernel = spatial(out.sizes, 2, 1);
  const Meeting patches = forward_meeting(kernel, result.size, source, Params(params));
  const Meeting places = identity_meeting(result);
  const int64_t rows = out.sizes[0] / params.groups;
  const int64_t cols = out.sizes[1] * product(kernel);
  const int64_t depth = source.batch * product(result.size);
  const ProductTiles tiles(rows, cols, params.groups);

  // Small weights with many positions: the positions are cut too, and the parts added in order. In
  // halves the parts are stretches, as many of them at a time.
  constexpr int64_t wanted_pieces = 32;
  constexpr int64_t least_depth = 1024;
  const int64_t count = params.groups * tiles.count();
  const int64_t parts =
      std::clamp<int64_t>(std::min(wanted_pieces / count, depth / least_depth), 1, wanted_pieces);
  const int64_t part_depth = divided_up(depth, parts);
  const int64_t size = out.numel();
  const PartialBlocks blocks(depth, depth);
  ScratchVector<float> partial(static_cast<size_t>(parts > 1 ? parts * size : 0));
  const auto sum_parts = [&](int64_t first, int64_t here) {
    pool.run(count * here, [&](int64_t piece) {
      const int64_t part = piece / count;
      const int64_t group = piece % count / tiles.count();
      const Range row_range = tiles.rows(piece % tiles.count(), rows);
      const Range col_range = tiles.cols(piece % tiles.count(), cols);
      const PatchLines left(result, places, group * rows);
      const PatchLines right(source, patches, group * out.sizes[1]);
      float* to = parts > 1 ? partial.data() + part * size : out.as<float>();
      to += (group * rows + row_range.begin) * cols + col_range.begin;
      if (partials.half) {
        const Range stretches =
            parts > 1 ? Range{first + part, first + part + 1} : Range{0, blocks.stretches()};
        multiply(left, row_range, right, col_range, {partials, blocks, cols, group * rows * cols},
                 stretches, to, cols, pool.level());
      } else {
        const Range depth_range{std::min(part * part_depth, depth),
                                std::min((part + 1) * part_depth, depth)};
        multiply(left, row_range, right, col_range, depth_range, to, cols, pool.level());
      }
    });
  };
  if (parts == 1) return sum_parts(0, 1);
  const int64_t all = partials.half ? blocks.stretches() : parts;
  for (int64_t first = 0; first < all; first += parts) {
    const int64_t here = std::min(parts, all - first);
    sum_parts(first, here);
    pool.run_ranges(size, 16384, [&](int64_t begin, int64_t end) {
      float* to = out.as<float>();
      if (first == 0) std::copy(partial.begin() + begin, partial.begin() + end, to + begin);
      for (int64_t part = first == 0 ? 1 : 0; part < here; ++part) {
        const float* from = partial.data() + part * size;
        for (int64_t i = begin; i < end; ++i) to[i] += from[i];
      }
    });
  }
}

}  // namespace tessera::kernels
