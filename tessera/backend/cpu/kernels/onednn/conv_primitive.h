// A convolution as oneDNN describes it: how the work is cut into pieces, how the operands of a
// piece lie, and the primitives that do it.
#pragma once

#ifdef TESSERA_WITH_ONEDNN

#include <string_view>

#include "tessera/backend/cpu/kernels/onednn/onednn.h"
#include "tessera/backend/cpu/kernels/table.h"

namespace tessera::cpu {

Shape logical_shape(const KernelOperand& operand);

// The convolution of a piece of the work: some images, and all channels of
// the side that is cut or, of a single image, some.
struct ConvProblem {
  dnnl::memory::dims input, output;
  dnnl::memory::dims weight;  // [groups, out, in, kernel...] where groups > 1
  dnnl::memory::dims stride, padding, dilation;
  int64_t groups = 1, image_pieces = 1, channel_pieces = 1;
  bool any_images = false;  // converting images costs less than the kernel that takes them as is

  int64_t pieces() const { return image_pieces * channel_pieces; }
};

// Which channels are cut when images are few: those of the result.
enum class ConvCut { input_channels, output_channels };

struct ConvSides {
  const KernelOperand &input, &weight, &output;
};

// At most `piece_limit` pieces.
ConvProblem problem_of(const KernelUse& use, const ConvSides& sides, ConvCut cut,
                       int64_t piece_limit);

dnnl::memory::desc plain_desc(const dnnl::memory::dims& dims);
// A piece of an operand, as it lies.
dnnl::memory::desc operand_desc(const dnnl::memory::dims& dims, const KernelOperand& operand);
// Bytes from one piece of a tensor to the next along a dimension that has `size` of it in a piece.
int64_t piece_step(const KernelOperand& operand, size_t dim, int64_t size);

dnnl::convolution_forward::primitive_desc forward_description(const ConvProblem& problem,
                                                              const ConvSides& sides,
                                                              const dnnl::memory::desc* bias);
dnnl::convolution_backward_data::primitive_desc input_grad_description(const ConvProblem& problem,
                                                                       const ConvSides& sides);
dnnl::convolution_backward_weights::primitive_desc weight_grad_description(
    const ConvProblem& problem, const ConvSides& sides);

// oneDNN has kernels that are only meant to be correct, for what no other one takes: small images,
// mostly. Then another layout of the images is tried.
template <typename Describe>
auto describe_well(ConvProblem problem, const Describe& describe) {
  auto description = describe(problem);
  if (std::string_view(description.impl_info_str()).find("ref") == std::string_view::npos) {
    return description;
  }
  problem.any_images = true;
  return describe(problem);
}

}  // namespace tessera::cpu

#endif
