// Convolutions and their gradients by oneDNN. The batch is cut into pieces of a few images; each
// piece brings its images into the layout oneDNN likes, which then still lie in the cache.
// Gradients of weights are summed over the pieces in order.
#include "tessera/backend/cpu/kernels/table.h"

#ifdef TESSERA_WITH_ONEDNN

#include <algorithm>
#include <utility>

#include "tessera/backend/cpu/kernels/onednn.h"
#include "tessera/base/error.h"

namespace tessera::cpu {
namespace {

using dnnl::memory;
using Direction = OnednnLayout::Direction;

// Below this a piece does not pay for waking a thread.
constexpr int64_t multiply_adds_per_piece = 750'000;
constexpr int64_t most_pieces = 32;
// Each piece has a gradient of its own to be summed afterwards.
constexpr int64_t most_weight_grad_pieces = 8;

// A convolution as oneDNN describes it, for some images of the batch.
struct Problem {
  memory::dims input, weight, output;  // weight: [groups, out, in, kernel...] where groups > 1
  memory::dims stride, padding, dilation;
  int64_t groups = 1, batch = 1, pieces = 1;

  int64_t images() const { return batch / pieces; }
};

// The fewest pieces of equal size that are at least as many as wanted.
int64_t equal_pieces(int64_t batch, int64_t wanted) {
  for (int64_t pieces = std::max<int64_t>(1, wanted); pieces < batch; ++pieces) {
    if (batch % pieces == 0) return pieces;
  }
  return wanted <= 1 ? 1 : batch;
}

Problem problem_of(const KernelUse& use, const Shape& input, const Shape& weight,
                   const Shape& output, int64_t piece_limit) {
  Problem problem;
  problem.groups = use.attrs.integer("groups");
  problem.stride = use.attrs.integers("stride");
  problem.padding = use.attrs.integers("padding");
  problem.dilation = use.attrs.integers("dilation");
  for (int64_t& dilation : problem.dilation) --dilation;  // oneDNN counts the gaps
  problem.batch = input[0];
  const int64_t multiply_adds = numel(output) * numel(weight) / std::max<int64_t>(1, weight[0]);
  problem.pieces =
      equal_pieces(problem.batch, std::clamp<int64_t>(multiply_adds / multiply_adds_per_piece, 1,
                                                      std::min(piece_limit, problem.batch)));
  problem.input = input;
  problem.input[0] = problem.images();
  problem.output = output;
  problem.output[0] = problem.images();
  problem.weight = weight;
  if (problem.groups > 1) {
    problem.weight[0] /= problem.groups;
    problem.weight.insert(problem.weight.begin(), problem.groups);
  }
  return problem;
}

memory::desc any(const memory::dims& dims) {
  return {dims, memory::data_type::f32, memory::format_tag::any};
}

memory::desc plain(const memory::dims& dims) {
  return {dims, memory::data_type::f32, contiguous_strides(dims)};
}

// Images as they lie in a batch of the given strides.
memory::desc plain(const memory::dims& dims, const Strides& strides) {
  return {dims, memory::data_type::f32, strides};
}

// Whether every element has a place of its own, as oneDNN asks of a layout.
bool has_no_overlap(const Geometry& geometry) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t i = 0; i < geometry.shape.size(); ++i) {
    if (geometry.shape[i] != 1) dims.emplace_back(geometry.strides[i], geometry.shape[i]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return false;
    reach += stride * (size - 1);
  }
  return true;
}

bool applies(const KernelUse& use) {
  for (size_t i = 0; i < use.inputs.size(); ++i) {
    if (!use.has_input(i)) continue;
    const KernelOperand& operand = use.inputs[i];
    if (operand.dtype != DType::f32 || numel(operand.geometry.shape) == 0) return false;
    if (!has_no_overlap(operand.geometry)) return false;
  }
  return numel(use.outputs[0].geometry.shape) > 0;
}

dnnl::convolution_forward::primitive_desc forward_description(const Problem& problem,
                                                              const memory::desc* bias) {
  const auto kind = dnnl::prop_kind::forward_training;
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const auto desc =
      bias ? dnnl::convolution_forward::desc(kind, algorithm, any(problem.input),
                                             any(problem.weight), *bias, any(problem.output),
                                             problem.stride, problem.dilation, problem.padding,
                                             problem.padding)
           : dnnl::convolution_forward::desc(
                 kind, algorithm, any(problem.input), any(problem.weight), any(problem.output),
                 problem.stride, problem.dilation, problem.padding, problem.padding);
  return {desc, onednn_attributes(), onednn_engine()};
}

dnnl::convolution_backward_data::primitive_desc input_grad_description(const Problem& problem) {
  const dnnl::convolution_backward_data::desc desc(
      dnnl::algorithm::convolution_direct, any(problem.input), any(problem.weight),
      any(problem.output), problem.stride, problem.dilation, problem.padding, problem.padding);
  return {desc, onednn_attributes(), onednn_engine(), forward_description(problem, nullptr)};
}

dnnl::convolution_backward_weights::primitive_desc weight_grad_description(const Problem& problem) {
  const dnnl::convolution_backward_weights::desc desc(
      dnnl::algorithm::convolution_direct, any(problem.input), any(problem.weight),
      any(problem.output), problem.stride, problem.dilation, problem.padding, problem.padding);
  return {desc, onednn_attributes(), onednn_engine(), forward_description(problem, nullptr)};
}

int64_t piece_bytes(const Problem& problem, const Strides& strides) {
  return problem.images() * strides[0] * int64_t{sizeof(float)};
}

// From images and weights to images: the convolution itself, and the gradient by its input.
class ImagesToImages : public PreparedKernel {
 public:
  template <typename Description>
  ImagesToImages(const KernelUse& use, const Problem& problem, const memory::dims& from,
                 const memory::dims& to, const Description& description,
                 const memory::desc& from_desc, const memory::desc& to_desc,
                 std::pair<int, int> arguments)
      : pieces_(problem.pieces),
        from_argument_(arguments.first),
        to_argument_(arguments.second),
        from_piece_bytes_(piece_bytes(problem, use.inputs[0].geometry.strides)),
        to_piece_bytes_(piece_bytes(problem, contiguous_strides(to))),
        from_(plain(from, use.inputs[0].geometry.strides), from_desc, Direction::to_primitive),
        weight_(plain(problem.weight), description.weights_desc(), Direction::to_primitive),
        to_(plain(to), to_desc, Direction::from_primitive),
        primitive_(description),
        bias_(use.has_input(2) ? plain(use.inputs[2].geometry.shape) : memory::desc()) {}

  int64_t workspace_bytes() const override { return weight_.bytes() + pieces_ * one_piece_bytes(); }

  void run(const KernelCall& call, std::span<std::byte> workspace) const override {
    std::byte* weight = weight_.data(call.inputs[1].data, workspace.data());
    {
      const OneOmpThread one_thread;
      weight_.convert(call.inputs[1].data, workspace.data());
    }
    call.pool.run(pieces_, [&](int64_t piece) {
      const OneOmpThread one_thread;
      std::byte* room = workspace.data() + weight_.bytes() + piece * one_piece_bytes();
      std::byte* from = call.inputs[0].data + piece * from_piece_bytes_;
      std::byte* to = call.outputs[0].data + piece * to_piece_bytes_;
      std::byte* to_room = room + from_.bytes();
      from_.convert(from, room);
      std::unordered_map<int, memory> arguments = {
          {from_argument_, onednn_memory(from_.wanted(), from_.data(from, room))},
          {DNNL_ARG_WEIGHTS, onednn_memory(weight_.wanted(), weight)},
          {to_argument_, onednn_memory(to_.wanted(), to_.data(to, to_room))}};
      if (call.has_input(2)) {
        arguments.emplace(DNNL_ARG_BIAS, onednn_memory(bias_, call.inputs[2].data));
      }
      primitive_.run(std::move(arguments), to_room + to_.bytes());
      to_.convert(to, to_room);
    });
  }

 private:
  int64_t one_piece_bytes() const {
    return from_.bytes() + to_.bytes() + primitive_.scratch_bytes();
  }

  int64_t pieces_;
  int from_argument_, to_argument_;
  int64_t from_piece_bytes_, to_piece_bytes_;
  OnednnLayout from_, weight_, to_;
  OnednnPrimitive primitive_;
  memory::desc bias_;
};

// From the images of both sides to the gradient of the weights.
class WeightGrad : public PreparedKernel {
 public:
  WeightGrad(const KernelUse& use, const Problem& problem,
             const dnnl::convolution_backward_weights::primitive_desc& description)
      : pieces_(problem.pieces),
        grad_piece_bytes_(piece_bytes(problem, use.inputs[0].geometry.strides)),
        input_piece_bytes_(piece_bytes(problem, use.inputs[1].geometry.strides)),
        grad_(plain(problem.output, use.inputs[0].geometry.strides), description.diff_dst_desc(),
              Direction::to_primitive),
        input_(plain(problem.input, use.inputs[1].geometry.strides), description.src_desc(),
               Direction::to_primitive),
        weight_(plain(problem.weight), description.diff_weights_desc(), Direction::from_primitive),
        primitive_(description) {}

  int64_t workspace_bytes() const override { return weight_.bytes() + pieces_ * one_piece_bytes(); }

  // The first piece writes where the sum will be, the others into room of their own.
  void run(const KernelCall& call, std::span<std::byte> workspace) const override {
    std::byte* sum = weight_.data(call.outputs[0].data, workspace.data());
    const auto room_of = [&](int64_t piece) {
      return workspace.data() + weight_.bytes() + piece * one_piece_bytes();
    };
    call.pool.run(pieces_, [&](int64_t piece) {
      const OneOmpThread one_thread;
      std::byte* partial = piece == 0 ? sum : room_of(piece);
      std::byte* grad_room = room_of(piece) + aligned_bytes(weight_.wanted());
      std::byte* input_room = grad_room + grad_.bytes();
      std::byte* grad = call.inputs[0].data + piece * grad_piece_bytes_;
      std::byte* input = call.inputs[1].data + piece * input_piece_bytes_;
      grad_.convert(grad, grad_room);
      input_.convert(input, input_room);
      primitive_.run(
          {{DNNL_ARG_DIFF_DST, onednn_memory(grad_.wanted(), grad_.data(grad, grad_room))},
           {DNNL_ARG_SRC, onednn_memory(input_.wanted(), input_.data(input, input_room))},
           {DNNL_ARG_DIFF_WEIGHTS, onednn_memory(weight_.wanted(), partial)}},
          input_room + input_.bytes());
    });
    add_partials(call.pool, reinterpret_cast<float*>(sum), room_of(0));
    const OneOmpThread one_thread;
    weight_.convert(call.outputs[0].data, workspace.data());
  }

 private:
  int64_t one_piece_bytes() const {
    return aligned_bytes(weight_.wanted()) + grad_.bytes() + input_.bytes() +
           primitive_.scratch_bytes();
  }

  void add_partials(ThreadPool& pool, float* sum, const std::byte* rooms) const {
    const auto count = static_cast<int64_t>(weight_.wanted().get_size() / sizeof(float));
    pool.run_ranges(count, 16384, [&](int64_t begin, int64_t end) {
      for (int64_t piece = 1; piece < pieces_; ++piece) {
        const auto* partial = reinterpret_cast<const float*>(rooms + piece * one_piece_bytes());
        for (int64_t i = begin; i < end; ++i) sum[i] += partial[i];
      }
    });
  }

  int64_t pieces_;
  int64_t grad_piece_bytes_, input_piece_bytes_;
  OnednnLayout grad_, input_, weight_;
  OnednnPrimitive primitive_;
};

bool is_dense(const KernelOperand& operand) {
  return same_elements(operand.geometry, dense(operand.geometry.shape));
}

// conv(input, weight, bias?)
bool images_to_images_applies(const KernelUse& use) {
  return applies(use) && is_dense(use.inputs[1]) && (!use.has_input(2) || is_dense(use.inputs[2]));
}

std::unique_ptr<PreparedKernel> prepare_forward(const KernelUse& use) {
  const OneOmpThread one_thread;
  const Problem problem =
      problem_of(use, use.inputs[0].geometry.shape, use.inputs[1].geometry.shape,
                 use.outputs[0].geometry.shape, most_pieces);
  const memory::desc bias = use.has_input(2) ? plain(use.inputs[2].geometry.shape) : memory::desc();
  const auto description = forward_description(problem, use.has_input(2) ? &bias : nullptr);
  return std::make_unique<ImagesToImages>(use, problem, problem.input, problem.output, description,
                                          description.src_desc(), description.dst_desc(),
                                          std::pair(DNNL_ARG_SRC, DNNL_ARG_DST));
}

// conv_input_grad(grad, weight)
std::unique_ptr<PreparedKernel> prepare_input_grad(const KernelUse& use) {
  const OneOmpThread one_thread;
  const Problem problem =
      problem_of(use, use.outputs[0].geometry.shape, use.inputs[1].geometry.shape,
                 use.inputs[0].geometry.shape, most_pieces);
  const auto description = input_grad_description(problem);
  return std::make_unique<ImagesToImages>(use, problem, problem.output, problem.input, description,
                                          description.diff_dst_desc(), description.diff_src_desc(),
                                          std::pair(DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC));
}

// Every piece has a gradient of its own, which costs memory and time to add up.
int64_t weight_grad_pieces(const Shape& weight) {
  constexpr int64_t most_bytes = 16 << 20;
  const int64_t fitting = most_bytes / std::max<int64_t>(1, bytes({DType::f32, weight}));
  return std::clamp<int64_t>(fitting, 2, most_weight_grad_pieces);
}

// conv_weight_grad(grad, input)
std::unique_ptr<PreparedKernel> prepare_weight_grad(const KernelUse& use) {
  const OneOmpThread one_thread;
  const Problem problem =
      problem_of(use, use.inputs[1].geometry.shape, use.outputs[0].geometry.shape,
                 use.inputs[0].geometry.shape, weight_grad_pieces(use.outputs[0].geometry.shape));
  return std::make_unique<WeightGrad>(use, problem, weight_grad_description(problem));
}

}  // namespace

std::span<const KernelEntry> conv_entries() {
  static constexpr KernelEntry entries[] = {
      {"conv", "onednn_conv", images_to_images_applies, prepare_forward},
      {"conv_input_grad", "onednn_conv_input_grad", images_to_images_applies, prepare_input_grad},
      {"conv_weight_grad", "onednn_conv_weight_grad", applies, prepare_weight_grad},
  };
  return entries;
}

}  // namespace tessera::cpu

#else

std::span<const tessera::cpu::KernelEntry> tessera::cpu::conv_entries() { return {}; }

#endif
