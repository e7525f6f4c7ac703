// Convolutions and their gradients by oneDNN. The work is cut into pieces of a few images or, where
// images are few, of some of the channels of one; pieces are primitives for one thread. Images in
// the channels layout and weights in theirs are what oneDNN likes and go in as they are; plain ones
// are brought there piece by piece, while they lie in the cache. Gradients of weights are summed
// over the pieces in order.
#include "tessera/backend/cpu/kernels/table.h"

#ifdef TESSERA_WITH_ONEDNN

#include <algorithm>
#include <utility>

#include "tessera/backend/cpu/kernels/epilogue_kernel.h"
#include "tessera/backend/cpu/kernels/onednn/conv_primitive.h"
#include "tessera/backend/cpu/kernels/stateful_kernel.h"
#include "tessera/base/error.h"

namespace tessera::cpu {
namespace {

using dnnl::memory;
using Direction = OnednnLayout::Direction;

constexpr int64_t most_pieces = 32;
// Each piece has a gradient of its own to be summed afterwards.
constexpr int64_t most_weight_grad_pieces = 8;

// Whether a step along a dimension leads past all that lies along the inner ones, as oneDNN asks of
// a layout. Elements of a diagonal have places of their own too, but lie between one another.
bool is_nested(const Geometry& geometry) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t i = 0; i < geometry.shape.size(); ++i) {
    dims.emplace_back(geometry.strides[i], geometry.shape[i]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t extent = 1;
  for (const auto& [stride, size] : dims) {
    if (stride < extent) return false;
    extent = stride * size;
  }
  return true;
}

bool is_dense(const KernelOperand& operand) {
  return same_elements(operand.geometry, dense(operand.geometry.shape));
}

// Which images and which channels a piece is about.
struct Piece {
  int64_t images, channels;
};

// What a convolution keeps from run to run: conversions of its weights, and a `Run` for each piece.
template <typename Run>
struct ConvState : KernelState {
  template <typename Kernel>
  ConvState(const Kernel& kernel, const OnednnLayout& weight, int64_t channel_pieces,
            int64_t count) {
    for (int64_t part = 0; part < channel_pieces; ++part) weights.emplace_back(weight);
    pieces.reserve(static_cast<size_t>(count));
    for (int64_t piece = 0; piece < count; ++piece) pieces.emplace_back(kernel);
  }

  std::vector<OnednnConversion> weights;
  std::vector<Run> pieces;
};

// From images and weights to images: the convolution itself, and the gradient by its input.
class ImagesToImages : public StatefulKernel, public EpilogueKernel {
 public:
  struct Tensors {
    const KernelOperand &from, &weight, &to;
    const memory::dims &from_dims, &to_dims;
    const memory::desc &from_desc, &to_desc;
    int from_argument, to_argument;
    size_t weight_dim;  // the dimension of the weights that is cut with the result's channels
  };

  template <typename Description>
  ImagesToImages(const KernelUse& use, const ConvProblem& problem, const Tensors& t,
                 const Description& description)
      : pieces_(problem.pieces()),
        channel_pieces_(problem.channel_pieces),
        from_argument_(t.from_argument),
        to_argument_(t.to_argument),
        from_step_(piece_step(t.from, 0, t.from_dims[0])),
        to_step_(piece_step(t.to, 0, t.to_dims[0])),
        to_shape_(t.to.geometry.shape),
        to_piece_{t.to_dims[0], to_shape_[1] / problem.channel_pieces},
        to_channel_step_(piece_step(t.to, 1, t.to_dims[1])),
        weight_step_(piece_step(t.weight, t.weight_dim, t.to_dims[1])),
        from_(operand_desc(t.from_dims, t.from), t.from_desc, Direction::to_primitive),
        weight_(operand_desc(problem.weight, t.weight), description.weights_desc(),
                Direction::to_primitive),
        to_(operand_desc(t.to_dims, t.to), t.to_desc, Direction::from_primitive),
        primitive_(description),
        has_bias_(use.has_input(2)),
        bias_(has_bias_ ? plain_desc({t.to_dims[1]}) : memory::desc()) {}

  int64_t workspace_bytes() const override {
    return channel_pieces_ * weight_.bytes() + pieces_ * one_piece_bytes();
  }

  std::unique_ptr<KernelState> make_state() const override {
    return std::make_unique<State>(*this, weight_, channel_pieces_, pieces_);
  }

  void run(KernelState& state, const KernelCall& call,
           std::span<std::byte> workspace) const override {
    run_with_epilogue(state, call, workspace, Epilogue{});
  }

  void run_with_epilogue(KernelState& kernel_state, const KernelCall& call,
                         std::span<std::byte> workspace, const Epilogue& epilogue) const override {
    const auto& state = static_cast<const State&>(kernel_state);
    const auto weight_at = [&](int64_t part) { return call.inputs[1].data + part * weight_step_; };
    const auto weight_room = [&](int64_t part) {
      return workspace.data() + part * weight_.bytes();
    };
    if (weight_.bytes() > 0) {
      call.pool.run(channel_pieces_, [&](int64_t part) {
        const OneOmpThread one_thread;
        state.weights[static_cast<size_t>(part)](weight_at(part), weight_room(part));
      });
    }
    call.pool.run(pieces_, [&](int64_t index) {
      const OneOmpThread one_thread;
      const Piece piece{index / channel_pieces_, index % channel_pieces_};
      const PieceRun& run = state.pieces[static_cast<size_t>(index)];
      std::byte* room =
          workspace.data() + channel_pieces_ * weight_.bytes() + index * one_piece_bytes();
      std::byte* from = call.inputs[0].data + piece.images * from_step_;
      std::byte* to =
          call.outputs[0].data + piece.images * to_step_ + piece.channels * to_channel_step_;
      std::byte* to_room = room + from_.bytes();
      std::byte* scratch = to_room + to_.bytes();
      const std::byte* from_data = from_.data(from, room);
      const std::byte* weight =
          weight_.data(weight_at(piece.channels), weight_room(piece.channels));
      const std::byte* to_data = to_.data(to, to_room);
      run.from(from, room);
      if (has_bias_) {
        const auto bias_step = static_cast<int64_t>(bias_.get_size());
        run.primitive(
            {from_data, weight, to_data, call.inputs[2].data + piece.channels * bias_step},
            scratch);
      } else {
        run.primitive({from_data, weight, to_data}, scratch);
      }
      run.to(to, to_room);
      if (epilogue) epilogue(box_of(piece));
    });
  }

 private:
  struct PieceRun {
    explicit PieceRun(const ImagesToImages& kernel)
        : from(kernel.from_), to(kernel.to_), primitive(kernel.primitive_run()) {}

    OnednnConversion from, to;
    OnednnRun primitive;
  };
  using State = ConvState<PieceRun>;

  OnednnRun primitive_run() const {
    const OnednnRun::Argument from{from_argument_, from_.wanted()},
        weight{DNNL_ARG_WEIGHTS, weight_.wanted()}, to{to_argument_, to_.wanted()};
    if (has_bias_) return {primitive_, {from, weight, to, {DNNL_ARG_BIAS, bias_}}};
    return {primitive_, {from, weight, to}};
  }
  int64_t one_piece_bytes() const {
    return from_.bytes() + to_.bytes() + primitive_.scratch_bytes();
  }

  Box box_of(const Piece& piece) const {
    Box box;
    std::copy(to_shape_.begin(), to_shape_.end(), box.end.begin());
    box.begin[0] = piece.images * to_piece_.images;
    box.end[0] = box.begin[0] + to_piece_.images;
    box.begin[1] = piece.channels * to_piece_.channels;
    box.end[1] = box.begin[1] + to_piece_.channels;
    return box;
  }

  int64_t pieces_, channel_pieces_;
  int from_argument_, to_argument_;
  int64_t from_step_, to_step_;
  Shape to_shape_;  // physical
  Piece to_piece_;  // how much of its first dimensions a piece has
  int64_t to_channel_step_, weight_step_;
  OnednnLayout from_, weight_, to_;
  OnednnPrimitive primitive_;
  bool has_bias_;
  memory::desc bias_;
};

// From the images of both sides to the gradient of the weights.
class WeightGrad : public StatefulKernel {
 public:
  WeightGrad(const ConvProblem& problem, const ConvSides& sides,
             const dnnl::convolution_backward_weights::primitive_desc& description)
      : pieces_(problem.pieces()),
        channel_pieces_(problem.channel_pieces),
        grad_step_(piece_step(sides.output, 0, problem.output[0])),
        grad_channel_step_(piece_step(sides.output, 1, problem.output[1])),
        input_step_(piece_step(sides.input, 0, problem.input[0])),
        weight_step_(piece_step(sides.weight, 0, problem.output[1])),
        grad_(operand_desc(problem.output, sides.output), description.diff_dst_desc(),
              Direction::to_primitive),
        input_(operand_desc(problem.input, sides.input), description.src_desc(),
               Direction::to_primitive),
        weight_(operand_desc(problem.weight, sides.weight), description.diff_weights_desc(),
                Direction::from_primitive),
        primitive_(description) {}

  int64_t workspace_bytes() const override {
    return channel_pieces_ * weight_.bytes() + pieces_ * one_piece_bytes();
  }

  std::unique_ptr<KernelState> make_state() const override {
    return std::make_unique<State>(*this, weight_, channel_pieces_, pieces_);
  }

  // The first images write where the sum will be, the others into room of their own.
  void run(KernelState& kernel_state, const KernelCall& call,
           std::span<std::byte> workspace) const override {
    const auto& state = static_cast<const State&>(kernel_state);
    const auto result = [&](int64_t part) { return call.outputs[0].data + part * weight_step_; };
    const auto result_room = [&](int64_t part) {
      return workspace.data() + part * weight_.bytes();
    };
    const auto sum = [&](int64_t part) { return weight_.data(result(part), result_room(part)); };
    const auto room_of = [&](int64_t piece) {
      return workspace.data() + channel_pieces_ * weight_.bytes() + piece * one_piece_bytes();
    };
    call.pool.run(pieces_, [&](int64_t index) {
      const OneOmpThread one_thread;
      const Piece piece{index / channel_pieces_, index % channel_pieces_};
      std::byte* partial = piece.images == 0 ? sum(piece.channels) : room_of(index);
      std::byte* grad_room = room_of(index) + aligned_bytes(weight_.wanted());
      std::byte* input_room = grad_room + grad_.bytes();
      std::byte* grad =
          call.inputs[0].data + piece.images * grad_step_ + piece.channels * grad_channel_step_;
      std::byte* input = call.inputs[1].data + piece.images * input_step_;
      const PieceRun& run = state.pieces[static_cast<size_t>(index)];
      run.grad(grad, grad_room);
      run.input(input, input_room);
      run.primitive({grad_.data(grad, grad_room), input_.data(input, input_room), partial},
                    input_room + input_.bytes());
    });
    for (int64_t part = 0; part < channel_pieces_; ++part) {
      add_partials(call.pool, reinterpret_cast<float*>(sum(part)), room_of(part));
      const OneOmpThread one_thread;
      state.weights[static_cast<size_t>(part)](result(part), result_room(part));
    }
  }

 private:
  struct PieceRun {
    explicit PieceRun(const WeightGrad& kernel)
        : grad(kernel.grad_),
          input(kernel.input_),
          primitive(kernel.primitive_, {{DNNL_ARG_DIFF_DST, kernel.grad_.wanted()},
                                        {DNNL_ARG_SRC, kernel.input_.wanted()},
                                        {DNNL_ARG_DIFF_WEIGHTS, kernel.weight_.wanted()}}) {}

    OnednnConversion grad, input;
    OnednnRun primitive;
  };
  using State = ConvState<PieceRun>;

  int64_t one_piece_bytes() const {
    return aligned_bytes(weight_.wanted()) + grad_.bytes() + input_.bytes() +
           primitive_.scratch_bytes();
  }

  void add_partials(ThreadPool& pool, float* sum, const std::byte* rooms) const {
    const auto count = static_cast<int64_t>(weight_.wanted().get_size() / sizeof(float));
    pool.run_ranges(count, 16384, [&](int64_t begin, int64_t end) {
      for (int64_t piece = channel_pieces_; piece < pieces_; piece += channel_pieces_) {
        const auto* partial = reinterpret_cast<const float*>(rooms + piece * one_piece_bytes());
        for (int64_t i = begin; i < end; ++i) sum[i] += partial[i];
      }
    });
  }

  int64_t pieces_, channel_pieces_;
  int64_t grad_step_, grad_channel_step_, input_step_, weight_step_;
  OnednnLayout grad_, input_, weight_;
  OnednnPrimitive primitive_;
};

// --- conv(input, weight, bias?) -----------------------------------------------------------------

std::unique_ptr<PreparedKernel> prepare_forward(const KernelUse& use) {
  const OneOmpThread one_thread;
  const ConvSides sides{use.inputs[0], use.inputs[1], use.outputs[0]};
  const ConvProblem problem = problem_of(use, sides, ConvCut::output_channels, most_pieces);
  const memory::desc bias = use.has_input(2) ? plain_desc({problem.output[1]}) : memory::desc();
  const auto description = describe_well(problem, [&](const ConvProblem& with) {
    return forward_description(with, sides, use.has_input(2) ? &bias : nullptr);
  });
  return std::make_unique<ImagesToImages>(
      use, problem,
      ImagesToImages::Tensors{sides.input, sides.weight, sides.output, problem.input,
                              problem.output, description.src_desc(), description.dst_desc(),
                              DNNL_ARG_SRC, DNNL_ARG_DST, 0},
      description);
}

// --- conv_input_grad(grad, weight) --------------------------------------------------------------

std::unique_ptr<PreparedKernel> prepare_input_grad(const KernelUse& use) {
  const OneOmpThread one_thread;
  const ConvSides sides{use.outputs[0], use.inputs[1], use.inputs[0]};
  const ConvProblem problem = problem_of(use, sides, ConvCut::input_channels, most_pieces);
  const auto description = describe_well(
      problem, [&](const ConvProblem& with) { return input_grad_description(with, sides); });
  return std::make_unique<ImagesToImages>(
      use, problem,
      ImagesToImages::Tensors{sides.output, sides.weight, sides.input, problem.output,
                              problem.input, description.diff_dst_desc(),
                              description.diff_src_desc(), DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC, 1},
      description);
}

// --- conv_weight_grad(grad, input) --------------------------------------------------------------

// Every piece has a gradient of its own, which costs memory and time to add up.
int64_t weight_grad_pieces(const Shape& weight) {
  constexpr int64_t most_bytes = 16 << 20;
  const int64_t fitting = most_bytes / std::max<int64_t>(1, bytes({DType::f32, weight}));
  return std::clamp<int64_t>(fitting, 2, most_weight_grad_pieces);
}

std::unique_ptr<PreparedKernel> prepare_weight_grad(const KernelUse& use) {
  const OneOmpThread one_thread;
  const ConvSides sides{use.inputs[1], use.outputs[0], use.inputs[0]};
  const ConvProblem problem = problem_of(use, sides, ConvCut::output_channels,
                                         weight_grad_pieces(use.outputs[0].geometry.shape));
  const auto description = describe_well(
      problem, [&](const ConvProblem& with) { return weight_grad_description(with, sides); });
  return std::make_unique<WeightGrad>(problem, sides, description);
}

// --- which uses ---------------------------------------------------------------------------------

// oneDNN takes no convolution whose result covers fewer places than there are, as a transposed one
// with output padding may, nor steps that are far larger than any image.
bool can_be_described(const KernelUse& use, const ConvSides& sides) {
  const Shape input = logical_shape(sides.input), weight = logical_shape(sides.weight),
              output = logical_shape(sides.output);
  constexpr int64_t longest_step = 1 << 20;
  for (size_t d = 0; d + 2 < input.size(); ++d) {
    const int64_t stride = use.attrs.integers("stride")[d];
    const int64_t padding = use.attrs.integers("padding")[d];
    const int64_t dilation = use.attrs.integers("dilation")[d];
    if (std::max({stride, padding, dilation}) > longest_step) return false;
    const int64_t room = input[2 + d] + 2 * padding - dilation * (weight[2 + d] - 1) - 1;
    if (room < 0 || room / stride + 1 != output[2 + d]) return false;
  }
  return true;
}

bool any_use(const KernelUse& use, const ConvSides& sides) {
  for (size_t i = 0; i < use.inputs.size(); ++i) {
    if (!use.has_input(i)) continue;
    const KernelOperand& operand = use.inputs[i];
    if (operand.dtype != DType::f32 || numel(operand.geometry.shape) == 0) return false;
    if (!is_nested(operand.geometry)) return false;
    if (!operand.layout.plain() && !is_dense(operand)) return false;
  }
  return numel(use.outputs[0].geometry.shape) > 0 && can_be_described(use, sides);
}

ConvSides sides_of_forward(const KernelUse& use) {
  return {use.inputs[0], use.inputs[1], use.outputs[0]};
}
ConvSides sides_of_input_grad(const KernelUse& use) {
  return {use.outputs[0], use.inputs[1], use.inputs[0]};
}
ConvSides sides_of_weight_grad(const KernelUse& use) {
  return {use.inputs[1], use.outputs[0], use.inputs[0]};
}

bool all_plain(const KernelUse& use) {
  const auto is_plain = [](const KernelOperand& operand) { return operand.layout.plain(); };
  return std::all_of(use.inputs.begin(), use.inputs.end(), is_plain) && is_plain(use.outputs[0]);
}

bool dense_weight_and_bias(const KernelUse& use) {
  return is_dense(use.inputs[1]) && (!use.has_input(2) || is_dense(use.inputs[2]));
}

bool plain_forward(const KernelUse& use) {
  return any_use(use, sides_of_forward(use)) && all_plain(use) && dense_weight_and_bias(use);
}

bool plain_input_grad(const KernelUse& use) {
  return any_use(use, sides_of_input_grad(use)) && all_plain(use) && dense_weight_and_bias(use);
}

bool plain_weight_grad(const KernelUse& use) {
  return any_use(use, sides_of_weight_grad(use)) && all_plain(use);
}

// Images of 2-D convolutions go into the channels layout where their channels come in whole groups;
// the first layer's input, with fewer channels than a group, stays plain. Weights likewise.
struct ChannelLayouts {
  Layout input, weight, output;
  bool good = false;
};

ChannelLayouts channel_layouts(const KernelUse& use, const Shape& input, const Shape& weight,
                               const Shape& output) {
  if (input.size() != 4) return {};
  const int64_t groups = use.attrs.integer("groups");
  const bool in = fits(channels_layout, input), out = fits(channels_layout, output);
  const bool first_layer = input[1] < Layout::group && groups == 1;
  const bool whole_groups = groups == 1 || (weight[0] / groups) % Layout::group == 0 ||
                            (weight[0] == groups && weight[1] == 1);
  if (!out || !(in || first_layer) || !whole_groups) return {};
  return {in ? channels_layout : plain_layout, in && groups == 1 ? weights_layout : plain_layout,
          channels_layout, true};
}

bool channels_in_use(const KernelUse& use, const ChannelLayouts& wanted, const ConvSides& sides) {
  return wanted.good && sides.input.layout == wanted.input &&
         sides.weight.layout == wanted.weight && sides.output.layout == wanted.output &&
         any_use(use, sides);
}

ChannelLayouts forward_layouts(const KernelUse& use) {
  return channel_layouts(use, logical_shape(use.inputs[0]), logical_shape(use.inputs[1]),
                         logical_shape(use.outputs[0]));
}

bool channels_forward(const KernelUse& use) {
  return channels_in_use(use, forward_layouts(use), sides_of_forward(use)) &&
         dense_weight_and_bias(use);
}

std::vector<Layout> wants_forward(const KernelUse& use) {
  const ChannelLayouts wanted = forward_layouts(use);
  if (!wanted.good || !any_use(use, sides_of_forward(use)) || !dense_weight_and_bias(use))
    return {};
  std::vector<Layout> layouts(use.inputs.size() + 1);
  layouts[0] = wanted.input;
  layouts[1] = wanted.weight;
  layouts.back() = wanted.output;
  return layouts;
}

ChannelLayouts input_grad_layouts(const KernelUse& use) {
  return channel_layouts(use, logical_shape(use.outputs[0]), logical_shape(use.inputs[1]),
                         logical_shape(use.inputs[0]));
}

bool channels_input_grad(const KernelUse& use) {
  return channels_in_use(use, input_grad_layouts(use), sides_of_input_grad(use)) &&
         is_dense(use.inputs[1]);
}

std::vector<Layout> wants_input_grad(const KernelUse& use) {
  const ChannelLayouts wanted = input_grad_layouts(use);
  if (!wanted.good || !any_use(use, sides_of_input_grad(use)) || !is_dense(use.inputs[1]))
    return {};
  return {wanted.output, wanted.weight, wanted.input};
}

ChannelLayouts weight_grad_layouts(const KernelUse& use) {
  return channel_layouts(use, logical_shape(use.inputs[1]), logical_shape(use.outputs[0]),
                         logical_shape(use.inputs[0]));
}

bool channels_weight_grad(const KernelUse& use) {
  return channels_in_use(use, weight_grad_layouts(use), sides_of_weight_grad(use));
}

std::vector<Layout> wants_weight_grad(const KernelUse& use) {
  const ChannelLayouts wanted = weight_grad_layouts(use);
  if (!wanted.good || !any_use(use, sides_of_weight_grad(use))) return {};
  return {wanted.output, wanted.input, wanted.weight};
}

constexpr KernelEntry entry(std::string_view op, std::string_view name,
                            bool (*applies)(const KernelUse&),
                            std::unique_ptr<PreparedKernel> (*prepare)(const KernelUse&),
                            std::vector<Layout> (*wants)(const KernelUse&), EpilogueKind epilogue) {
  return {.op = op,
          .name = name,
          .applies = applies,
          .prepare = prepare,
          .wants = wants,
          .epilogue = epilogue,
          .uses_whole_machine = true};
}

}  // namespace

std::span<const KernelEntry> onednn_conv_entries() {
  // clang-format off
  static constexpr KernelEntry entries[] = {
      entry("conv", "onednn_channels", channels_forward, prepare_forward, wants_forward, EpilogueKind::any),
      entry("conv", "onednn_conv", plain_forward, prepare_forward, nullptr, EpilogueKind::any),
      entry("conv_input_grad", "onednn_channels_input_grad", channels_input_grad, prepare_input_grad, wants_input_grad, EpilogueKind::any),
      entry("conv_input_grad", "onednn_conv_input_grad", plain_input_grad, prepare_input_grad, nullptr, EpilogueKind::any),
      entry("conv_weight_grad", "onednn_channels_weight_grad", channels_weight_grad, prepare_weight_grad, wants_weight_grad, EpilogueKind::none),
      entry("conv_weight_grad", "onednn_conv_weight_grad", plain_weight_grad, prepare_weight_grad, nullptr, EpilogueKind::none),
  };
  // clang-format on
  return entries;
}

}  // namespace tessera::cpu

#else

std::span<const tessera::cpu::KernelEntry> tessera::cpu::onednn_conv_entries() { return {}; }

#endif
