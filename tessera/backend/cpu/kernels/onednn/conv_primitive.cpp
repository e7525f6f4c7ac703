#include "tessera/backend/cpu/kernels/onednn/conv_primitive.h"

#ifdef TESSERA_WITH_ONEDNN

#include <algorithm>

namespace tessera::cpu {
namespace {

using dnnl::memory;

// Below this a piece does not pay for waking a thread.
constexpr int64_t multiply_adds_per_piece = 750'000;
// A primitive for fewer channels than this runs well below its speed.
constexpr int64_t fewest_channels_of_piece = 32;

// The fewest pieces of equal size that are at least as many as wanted.
int64_t equal_pieces(int64_t batch, int64_t wanted) {
  for (int64_t pieces = std::max<int64_t>(1, wanted); pieces < batch; ++pieces) {
    if (batch % pieces == 0) return pieces;
  }
  return wanted <= 1 ? 1 : batch;
}

// How many pieces of equal size to make of the channels of one image.
int64_t channel_pieces(int64_t channels, int64_t wanted) {
  int64_t best = 1;
  for (int64_t pieces = 2; pieces <= wanted; ++pieces) {
    const bool equal = channels % (pieces * Layout::group) == 0;
    if (equal && channels / pieces >= fewest_channels_of_piece) best = pieces;
  }
  return best;
}

memory::desc any(const memory::dims& dims) {
  return {dims, memory::data_type::f32, memory::format_tag::any};
}

// What a primitive is asked to work on: blocked images as they are, others as it likes.
memory::desc asked(const ConvProblem& problem, const memory::dims& dims,
                   const KernelOperand& operand) {
  const bool as_is = operand.layout == channels_layout && !problem.any_images;
  return as_is ? operand_desc(dims, operand) : any(dims);
}

}  // namespace

Shape logical_shape(const KernelOperand& operand) {
  return logical_shape(operand.layout, operand.geometry.shape);
}

ConvProblem problem_of(const KernelUse& use, const ConvSides& sides, ConvCut cut,
                       int64_t piece_limit) {
  ConvProblem problem;
  problem.groups = use.attrs.integer("groups");
  problem.stride = use.attrs.integers("stride");
  problem.padding = use.attrs.integers("padding");
  problem.dilation = use.attrs.integers("dilation");
  for (int64_t& dilation : problem.dilation) --dilation;  // oneDNN counts the gaps
  problem.input = logical_shape(sides.input);
  problem.weight = logical_shape(sides.weight);
  problem.output = logical_shape(sides.output);

  const int64_t batch = problem.input[0];
  const int64_t multiply_adds =
      numel(problem.output) * numel(problem.weight) / std::max<int64_t>(1, problem.weight[0]);
  const int64_t wanted =
      std::clamp<int64_t>(multiply_adds / multiply_adds_per_piece, 1, piece_limit);
  problem.image_pieces = equal_pieces(batch, std::min(wanted, batch));
  const bool few_images = batch < 8 && problem.image_pieces == batch;
  const KernelOperand& cut_side = cut == ConvCut::input_channels ? sides.input : sides.output;
  if (few_images && problem.groups == 1 && cut_side.layout == channels_layout) {
    int64_t& channels = cut == ConvCut::input_channels ? problem.input[1] : problem.output[1];
    problem.channel_pieces = channel_pieces(channels, std::min<int64_t>(8, wanted / batch));
    channels /= problem.channel_pieces;
    problem.weight[cut == ConvCut::input_channels ? 1 : 0] = channels;
  }
  problem.input[0] = problem.output[0] = batch / problem.image_pieces;
  if (problem.groups > 1) {
    problem.weight[0] /= problem.groups;
    problem.weight.insert(problem.weight.begin(), problem.groups);
  }
  return problem;
}

memory::desc plain_desc(const memory::dims& dims) {
  return {dims, memory::data_type::f32, contiguous_strides(dims)};
}

memory::desc operand_desc(const memory::dims& dims, const KernelOperand& operand) {
  if (operand.layout == channels_layout) {
    return {dims, memory::data_type::f32, memory::format_tag::aBcd8b};
  }
  if (operand.layout == weights_layout) {
    memory::dims all = logical_shape(operand);
    const memory::desc whole(all, memory::data_type::f32, memory::format_tag::ABcd8b8a);
    return dims == all ? whole : whole.submemory_desc(dims, memory::dims(dims.size(), 0));
  }
  // Weights in groups have a dimension more than the operand, and are dense.
  const bool grouped = dims.size() != operand.geometry.shape.size();
  return {dims, memory::data_type::f32,
          grouped ? contiguous_strides(dims) : operand.geometry.strides};
}

int64_t piece_step(const KernelOperand& operand, size_t dim, int64_t size) {
  const auto& cut = operand.layout.cut;
  const bool grouped = std::find(cut.begin(), cut.end(), static_cast<int>(dim)) != cut.end();
  return size / (grouped ? Layout::group : 1) * operand.geometry.strides[dim] *
         int64_t{sizeof(float)};
}

dnnl::convolution_forward::primitive_desc forward_description(const ConvProblem& problem,
                                                              const ConvSides& sides,
                                                              const memory::desc* bias) {
  const auto kind = dnnl::prop_kind::forward_training;
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const memory::desc input = asked(problem, problem.input, sides.input),
                     weight = any(problem.weight),
                     output = asked(problem, problem.output, sides.output);
  if (bias) {
    return onednn_description<dnnl::convolution_forward>(kind, algorithm, input, weight, *bias,
                                                         output, problem.stride, problem.dilation,
                                                         problem.padding, problem.padding);
  }
  return onednn_description<dnnl::convolution_forward>(kind, algorithm, input, weight, output,
                                                       problem.stride, problem.dilation,
                                                       problem.padding, problem.padding);
}

namespace {

template <typename Primitive>
typename Primitive::primitive_desc backward_description(const ConvProblem& problem,
                                                        const ConvSides& sides) {
  return onednn_description_of_backward<Primitive>(
      forward_description(problem, sides, nullptr), dnnl::algorithm::convolution_direct,
      asked(problem, problem.input, sides.input), any(problem.weight),
      asked(problem, problem.output, sides.output), problem.stride, problem.dilation,
      problem.padding, problem.padding);
}

}  // namespace

dnnl::convolution_backward_data::primitive_desc input_grad_description(const ConvProblem& problem,
                                                                       const ConvSides& sides) {
  return backward_description<dnnl::convolution_backward_data>(problem, sides);
}

dnnl::convolution_backward_weights::primitive_desc weight_grad_description(
    const ConvProblem& problem, const ConvSides& sides) {
  return backward_description<dnnl::convolution_backward_weights>(problem, sides);
}

}  // namespace tessera::cpu

#endif
