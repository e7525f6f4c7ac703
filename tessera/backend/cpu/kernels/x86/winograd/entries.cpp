// The entries of the Winograd convolutions: which uses they apply to, and when they are good.
#include <algorithm>
#include <optional>

#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/backend/cpu/kernels/x86/winograd/choice.h"
#include "tessera/backend/cpu/kernels/x86/winograd/images.h"
#include "tessera/backend/cpu/kernels/x86/winograd/weight_grad.h"

namespace tessera::cpu {
namespace {

constexpr int64_t least_channels = 16;

enum class Row { forward, input_grad, weight_grad };

// Images and weights of a use, with which of its operands they are.
struct Roles {
  const KernelOperand *input, *weight, *output;
};

Roles roles_of(const KernelUse& use, Row row) {
  if (row == Row::forward) return {&use.inputs[0], &use.inputs[1], &use.outputs[0]};
  if (row == Row::input_grad) return {&use.outputs[0], &use.inputs[1], &use.inputs[0]};
  return {&use.inputs[1], &use.outputs[0], &use.inputs[0]};
}

std::vector<Layout> wanted_layouts(const KernelUse& use, Row row) {
  if (row == Row::weight_grad) return {channels_layout, channels_layout, weights_layout};
  std::vector<Layout> layouts(use.inputs.size(), plain_layout);
  layouts[0] = channels_layout;
  layouts[1] = weights_layout;
  layouts.push_back(channels_layout);
  return layouts;
}

bool is_half(const KernelUse& use, size_t operand) {
  return use.has_input(operand) && use.inputs[operand].dtype == DType::f16;
}

bool is_float_or_half(const KernelOperand& operand) {
  return !operand.present || operand.dtype == DType::f32 || operand.dtype == DType::f16;
}

bool is_dense(const KernelOperand& operand) {
  return same_elements(operand.geometry, dense(operand.geometry.shape));
}

Shape logical_shape(const KernelOperand& operand) {
  Shape shape = operand.geometry.shape;
  for (const int dim : operand.layout.cut) shape[static_cast<size_t>(dim)] *= Layout::group;
  shape.resize(shape.size() - operand.layout.cut.size());
  return shape;
}

// The convolution that a use is, seen forwards; nothing where it is none of ours.
std::optional<WinogradShape> convolution_of(const KernelUse& use, Row row) {
  const auto all = [&](std::string_view name, int64_t value) {
    const auto& values = use.attrs.integers(name);
    return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == value; });
  };
  if (use.attrs.integer("groups") != 1 || !all("stride", 1) || !all("dilation", 1)) {
    return std::nullopt;
  }
  const Roles roles = roles_of(use, row);
  for (const KernelOperand& operand : use.inputs) {
    if (!is_float_or_half(operand)) return std::nullopt;
  }
  if (!is_float_or_half(use.outputs[0])) return std::nullopt;
  const Shape input = logical_shape(*roles.input), weight = logical_shape(*roles.weight),
              output = logical_shape(*roles.output);
  if (weight.size() != 4 || weight[2] != 3 || weight[3] != 3) return std::nullopt;
  if (!fits(weights_layout, weight) || weight[0] < least_channels || weight[1] < least_channels) {
    return std::nullopt;
  }
  const auto& padding = use.attrs.integers("padding");
  const WinogradShape shape{.batch = input[0],
                            .in = input[1],
                            .out = weight[0],
                            .height = input[2],
                            .width = input[3],
                            .pad_height = padding[0],
                            .pad_width = padding[1]};
  if (std::max(padding[0], padding[1]) > 2 || numel(input) == 0) return std::nullopt;
  // The gradient of places beyond the input's reach may have been left out.
  if (output != Shape{shape.batch, shape.out, shape.out_height(), shape.out_width()}) {
    return std::nullopt;
  }
  return shape;
}

// The convolution that is computed: for the gradient by the input, back from the output.
WinogradShape computed(const WinogradShape& forward, Row row) {
  if (row != Row::input_grad) return forward;
  return {.batch = forward.batch,
          .in = forward.out,
          .out = forward.in,
          .height = forward.out_height(),
          .width = forward.out_width(),
          .pad_height = 2 - forward.pad_height,
          .pad_width = 2 - forward.pad_width};
}

bool is_good(const KernelUse& use, Row row, int tile) {
  const auto shape = convolution_of(use, row);
  return shape && winograd_tile(computed(*shape, row), use.target.precise) == tile;
}

template <Row row, int tile>
bool applies(const KernelUse& use) {
  const auto wanted = wanted_layouts(use, row);
  for (size_t i = 0; i < use.inputs.size(); ++i) {
    if (!use.has_input(i)) continue;
    const KernelOperand& operand = use.inputs[i];
    if (operand.layout != wanted[i] || !is_float_or_half(operand) || !is_dense(operand)) {
      return false;
    }
  }
  return use.outputs[0].layout == wanted.back() && is_good(use, row, tile);
}

template <Row row, int tile>
std::vector<Layout> wants(const KernelUse& use) {
  return is_good(use, row, tile) ? wanted_layouts(use, row) : std::vector<Layout>{};
}

template <Row row, int tile>
std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  const WinogradShape shape = computed(*convolution_of(use, row), row);
  if constexpr (row == Row::weight_grad) {
    const WinogradWeightGrad::Halves halves{is_half(use, 0), is_half(use, 1)};
    return std::make_unique<WinogradWeightGrad>(shape, tile, halves);
  }
  using Direction = WinogradImages::Direction;
  const WinogradImages::Halves halves{is_half(use, 0), is_half(use, 1), is_half(use, 2),
                                      use.outputs[0].dtype == DType::f16};
  return std::make_unique<WinogradImages>(
      shape, tile, row == Row::forward ? Direction::forward : Direction::input_grad, halves);
}

template <Row row, int tile>
constexpr KernelEntry entry(std::string_view op, std::string_view name) {
  return {.op = op,
          .name = name,
          .applies = applies<row, tile>,
          .prepare = prepare<row, tile>,
          .wants = wants<row, tile>,
          .epilogue = row == Row::weight_grad ? EpilogueKind::none : EpilogueKind::in_rooms,
          .reads_halves = true};
}

}  // namespace

std::span<const KernelEntry> winograd_entries() {
  static constexpr KernelEntry entries[] = {
      entry<Row::forward, 4>("conv", "winograd_4"),
      entry<Row::forward, 2>("conv", "winograd_2"),
      entry<Row::input_grad, 4>("conv_input_grad", "winograd_4"),
      entry<Row::input_grad, 2>("conv_input_grad", "winograd_2"),
      entry<Row::weight_grad, 4>("conv_weight_grad", "winograd_4"),
      entry<Row::weight_grad, 2>("conv_weight_grad", "winograd_2"),
  };
  return entries;
}

}  // namespace tessera::cpu
