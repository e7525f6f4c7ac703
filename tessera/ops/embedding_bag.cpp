// Rows of a matrix, picked by indices and folded bag by bag, with gradients. Bags begin at offsets,
// which are data: kernels check them while the program runs.
#include <algorithm>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/base/scratch.h"
#include "tessera/kernels/copy.h"
#include "tessera/ops/families.h"
#include "tessera/ops/operand_checks.h"
#include "tessera/ops/row_parts.h"

namespace tessera {
namespace {

using namespace row_parts;

enum Mode : int64_t { sum = 0, mean = 1, max = 2 };

void check_index(const TensorType& index) {
  check(index.dtype == DType::i32 || index.dtype == DType::i64, ErrorKind::type,
        "embedding_bag: indices and offsets must be int32 or int64, not {}", name_of(index.dtype));
  check(index.shape.size() == 1, "embedding_bag: wanted a vector of indices, got shape {}",
        to_string(index.shape));
}

int64_t check_mode(const Attrs& attrs) {
  const int64_t mode = attrs.integer("mode");
  check(mode >= sum && mode <= max, ErrorKind::value,
        "embedding_bag: mode must be 0 (sum), 1 (mean) or 2 (max), not {}", mode);
  return mode;
}

// Which bags indices are in is data too.
int64_t checked_bag(int64_t bag, int64_t bags) {
  check(bag < bags, "embedding_bag: there is no bag {}, only {}", bag, bags);
  return bag;
}

int64_t checked_row(int64_t index, int64_t rows) {
  check(index >= 0 && index < rows, "embedding_bag: index {} is outside the {} rows", index, rows);
  return index;
}

Cost cost_of_bags(const OpView& op, std::span<const TensorType> results) {
  const int64_t moved = numel(op.shape(1)) + numel(results[0].shape);
  return GatherCost{moved, 8 * moved};
}

// ---- Forward

std::vector<TensorType> infer_bag(const OpView& op) {
  check(op.shape(0).size() == 2 && is_floating(op.type(0).dtype),
        "embedding_bag: the weight must be a matrix of floating point, got {}",
        to_string(op.type(0)));
  check_index(op.type(1));
  check_index(op.type(2));
  const int64_t mode = check_mode(op.attrs());
  OperandChecks(op, "embedding_bag").floating(3, "per_sample_weights", op.shape(1));
  const int64_t last = op.attrs().flag("include_last_offset") ? 1 : 0;
  const int64_t bags = op.shape(2)[0] - last;
  check(bags >= 0, "embedding_bag: include_last_offset needs an offset");
  const Shape out{bags, op.shape(0)[1]};
  return {{op.type(0).dtype, out},
          {DType::i64, op.shape(1)},
          {DType::i64, {bags}},
          {DType::i64, mode == max ? out : Shape{bags}}};
}

// Which bag each index is in.
void find_bags(const KernelCall& call, int32_t* bag_of) {
  const kernels::Dense offsets(call.inputs[2], call.pool);
  const int64_t count = call.inputs[1].numel();
  const int64_t bags = call.outputs[2].numel();
  const int64_t given = offsets.view().numel();
  int64_t at = 0;
  for (int64_t bag = 0; bag < bags; ++bag) {
    const int64_t begin = offsets.as<int32_t>()[bag];
    const int64_t end = bag + 1 < given ? offsets.as<int32_t>()[bag + 1] : count;
    check(begin == at && end >= begin && end <= count,
          "embedding_bag: offsets must begin with 0 and rise to at most the {} indices, but bag {} "
          "goes from {} to {}",
          count, bag, begin, end);
    for (; at < end; ++at) bag_of[at] = static_cast<int32_t>(bag);
  }
  // What the last offset leaves over belongs to no bag.
  for (; at < count; ++at) bag_of[at] = -1;
}

void run_bag(const KernelCall& call) {
  const kernels::Dense weight(call.inputs[0], call.pool);
  const kernels::Dense indices(call.inputs[1], call.pool);
  const int64_t mode = call.attrs.integer("mode");
  const int64_t padding = call.attrs.integer("padding_idx");
  const int64_t count = call.inputs[1].numel();
  const int64_t rows = weight.view().sizes[0];
  const int64_t width = weight.view().sizes[1];
  auto* bag_of = call.outputs[1].as<int32_t>();
  auto* sizes = call.outputs[2].as<int32_t>();
  auto* largest = call.outputs[3].as<int32_t>();
  auto* out = call.outputs[0].as<float>();
  find_bags(call, bag_of);
  kernels::fill(0, call.outputs[0], call.pool);
  kernels::fill(0, call.outputs[2], call.pool);
  kernels::fill(0, call.outputs[3], call.pool);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = checked_row(indices.as<int32_t>()[i], rows);
    const int64_t bag = bag_of[i];
    if (row == padding || bag < 0) continue;
    const float scale =
        call.has_input(3) ? call.inputs[3].as<float>()[i * call.inputs[3].strides[0]] : 1.0F;
    const float* from = weight.as<float>() + row * width;
    float* to = out + bag * width;
    const bool first = sizes[bag]++ == 0;
    for (int64_t k = 0; k < width; ++k) {
      if (mode != max) {
        to[k] += scale * from[k];
      } else if (first || from[k] > to[k]) {
        to[k] = from[k];
        largest[bag * width + k] = static_cast<int32_t>(row);
      }
    }
  }
  if (mode != mean) return;
  for (int64_t bag = 0; bag < call.outputs[2].numel(); ++bag) {
    for (int64_t k = 0; k < width && sizes[bag] > 0; ++k) {
      out[bag * width + k] /= static_cast<float>(sizes[bag]);
    }
  }
}

// ---- Gradients

std::vector<TensorType> infer_bag_backward(const OpView& op) {
  check(op.shape(0).size() == 2, "embedding_bag: the gradient must be a matrix, got shape {}",
        to_string(op.shape(0)));
  check_index(op.type(1));
  const int64_t mode = check_mode(op.attrs());
  const OperandChecks operands(op, "embedding_bag");
  operands.floating(0, "the gradient");
  const Shape per_bag{op.shape(0)[0]};
  operands.index(2, "the bags of the indices", op.shape(1));
  operands.index(3, "the sizes of the bags", per_bag);
  operands.index(4, "the largest rows", mode == max ? op.shape(0) : per_bag);
  operands.floating(5, "per_sample_weights", op.shape(1));
  check(op.attrs().integer("num_weights") >= 0, ErrorKind::value,
        "embedding_bag: num_weights must not be negative, got {}",
        op.attrs().integer("num_weights"));
  return {{op.type(0).dtype, {op.attrs().integer("num_weights"), op.shape(0)[1]}}};
}

void run_bag_backward(const KernelCall& call) {
  const kernels::Dense grad(call.inputs[0], call.pool);
  const kernels::Dense indices(call.inputs[1], call.pool);
  const kernels::Dense bag_of(call.inputs[2], call.pool);
  const kernels::Dense sizes(call.inputs[3], call.pool);
  const kernels::Dense largest(call.inputs[4], call.pool);
  const TensorView& out = call.outputs[0];
  const int64_t rows = out.sizes[0];
  const int64_t width = out.sizes[1];
  const int64_t padding = call.attrs.integer("padding_idx");
  const int64_t mode = call.attrs.integer("mode");
  kernels::fill(0, out, call.pool);
  if (mode == max) {
    for (int64_t bag = 0; bag < grad.view().sizes[0]; ++bag) {
      if (sizes.as<int32_t>()[bag] == 0) continue;
      for (int64_t k = bag * width; k < (bag + 1) * width; ++k) {
        const int64_t row = checked_row(largest.as<int32_t>()[k], rows);
        out.as<float>()[row * width + k % width] += grad.as<float>()[k];
      }
    }
    return;
  }
  const int64_t count = indices.view().numel();
  ScratchVector<int32_t> frequency(static_cast<size_t>(rows));
  for (int64_t i = 0; i < count; ++i) {
    ++frequency[static_cast<size_t>(checked_row(indices.as<int32_t>()[i], rows))];
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = indices.as<int32_t>()[i];
    const int64_t bag = checked_bag(bag_of.as<int32_t>()[i], grad.view().sizes[0]);
    if (row == padding || bag < 0) continue;
    float scale =
        call.has_input(5) ? call.inputs[5].as<float>()[i * call.inputs[5].strides[0]] : 1.0F;
    if (call.attrs.flag("scale_grad_by_freq")) {
      scale /= static_cast<float>(frequency[static_cast<size_t>(row)]);
    }
    if (mode == mean) scale /= static_cast<float>(std::max(sizes.as<int32_t>()[bag], 1));
    for (int64_t k = 0; k < width; ++k) {
      out.as<float>()[row * width + k] += scale * grad.as<float>()[bag * width + k];
    }
  }
}

std::vector<TensorType> infer_sample_backward(const OpView& op) {
  check_index(op.type(2));
  const OperandChecks operands(op, "embedding_bag");
  operands.floating(0, "the gradient");
  operands.rank(0, "the gradient", 2, 2);
  operands.floating(1, "the weight");
  operands.rank(1, "the weight", 2, 2);
  operands.shape(1, "the weight", {op.shape(1)[0], op.shape(0)[1]});
  operands.index(4, "the bags of the indices", op.shape(2));
  return {{op.type(0).dtype, op.shape(2)}};
}

void run_sample_backward(const KernelCall& call) {
  const kernels::Dense grad(call.inputs[0], call.pool);
  const kernels::Dense weight(call.inputs[1], call.pool);
  const kernels::Dense indices(call.inputs[2], call.pool);
  const kernels::Dense bag_of(call.inputs[4], call.pool);
  const int64_t rows = weight.view().sizes[0];
  const int64_t width = weight.view().sizes[1];
  const int64_t padding = call.attrs.integer("padding_idx");
  for (int64_t i = 0; i < indices.view().numel(); ++i) {
    const int64_t row = checked_row(indices.as<int32_t>()[i], rows);
    const int64_t bag = checked_bag(bag_of.as<int32_t>()[i], grad.view().sizes[0]);
    double product = 0;
    for (int64_t k = 0; k < width && row != padding && bag >= 0; ++k) {
      product += static_cast<double>(grad.as<float>()[bag * width + k]) *
                 static_cast<double>(weight.as<float>()[row * width + k]);
    }
    call.outputs[0].as<float>()[i] = static_cast<float>(product);
  }
}

std::vector<OpDef> make_rows() {
  const AttrSpec mode = integer("mode", sum);
  const AttrSpec padding = integer("padding_idx", -1);
  const AttrSpec by_frequency = flag("scale_grad_by_freq", false);
  const std::string arguments =
      "weight, indices, offsets, per_sample_weights | mode, include_last_offset, padding_idx";
  const std::string backward_arguments =
      "grad, indices, offset2bag, bag_size, maximum_indices, per_sample_weights | "
      "num_weights, scale_grad_by_freq, mode, padding_idx";
  const auto forward_sample = [](int64_t how, bool weighted) {
    return Sample{{reals({6, 3}), integers({7}, {0, 6}), integers({1}, {0, 1}),
                   weighted ? reals({7}) : left_out()},
                  {{"mode", how}}};
  };
  const auto backward_sample = [](int64_t how) {
    return Sample{
        {reals({2, 3}), integers({7}, {0, 6}), integers({7}, {0, 2}), integers({2}, {3, 4}),
         integers(how == max ? Shape{2, 3} : Shape{2}, {0, 6}), left_out()},
        {{"mode", how}, {"num_weights", attr(6)}}};
  };
  return {
      {.name = "embedding_bag",
       .operands = "weight, indices, offsets, per_sample_weights?",
       .results = "out, offset2bag, bag_size, max_indices",
       .doc = "Rows of a matrix, picked by indices and summed, averaged or maximised by bag.",
       .kind = Kind::gather,
       .attrs = {mode, flag("include_last_offset", false), padding},
       .aten = {{"_embedding_bag", arguments}, {"_embedding_bag_forward_only", arguments}},
       .infer = infer_bag,
       .cost = cost_of_bags,
       .cpu = run_bag,
       .samples = {forward_sample(sum, false), forward_sample(sum, true),
                   forward_sample(mean, false), forward_sample(max, false)}},
      {.name = "embedding_bag_backward",
       .operands = "grad, indices, offset2bag, bag_size, maximum_indices, per_sample_weights?",
       .results = "grad_weight",
       .doc = "The gradient of embedding_bag by its matrix.",
       .kind = Kind::gather,
       .attrs = {integer("num_weights"), by_frequency, mode, padding},
       .aten = {{"_embedding_bag_dense_backward", backward_arguments},
                {"_embedding_bag_backward", backward_arguments}},
       .infer = infer_bag_backward,
       .cost = cost_of_bags,
       .cpu = run_bag_backward,
       .samples = {backward_sample(sum), backward_sample(mean), backward_sample(max)}},
      {.name = "embedding_bag_weights_backward",
       .operands = "grad, weight, indices, offsets, offset2bag",
       .results = "grad_per_sample_weights",
       .doc = "The gradient of embedding_bag by the weight of each index.",
       .kind = Kind::gather,
       .attrs = {mode, padding},
       .aten = {{"_embedding_bag_per_sample_weights_backward",
                 "grad, weight, indices, offsets, offset2bag | mode, padding_idx"}},
       .infer = infer_sample_backward,
       .cost = cost_of_bags,
       .cpu = run_sample_backward,
       .samples = {Sample{{reals({2, 3}), reals({6, 3}), integers({7}, {0, 6}),
                           integers({2}, {0, 1}), integers({7}, {0, 2})}}}},
  };
}

}  // namespace

std::span<const OpDef> families::embedding_bag() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
