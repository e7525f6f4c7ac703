// Running folds: every element together with all before it along a dimension.
#include <algorithm>

#include "tessera/kernels/dispatch.h"
#include "tessera/kernels/elementwise.h"
#include "tessera/kernels/operand_reader.h"
#include "tessera/ops/families.h"
#include "tessera/ops/row_parts.h"

namespace tessera::families {
namespace {

using namespace row_parts;

std::vector<TensorType> infer_cumsum(const OpView& op) {
  wrap_dim(op.attrs().integer("dim"), static_cast<int64_t>(op.shape(0).size()));
  DType dtype = op.type(0).dtype;
  if (!is_floating(dtype)) dtype = DType::i64;
  if (op.attrs().has("dtype")) dtype = op.attrs().dtype("dtype");
  return {{dtype, op.shape(0)}};
}

Cost scan_cost(const OpView& op, std::span<const TensorType> results) {
  return ReductionCost{numel(op.shape(0)), numel(results[0].shape)};
}

// Sums from the front of each row up to each element. Rows are independent, so they are the pieces.
void run_cumsum(const KernelCall& call) {
  const TensorView& input = call.inputs[0];
  const TensorView& out = call.outputs[0];
  const int64_t dim = wrap_dim(call.attrs.integer("dim"), input.rank());
  int64_t outer = 1, size = 1, inner = 1;
  for (int64_t i = 0; i < input.rank(); ++i) {
    (i < dim ? outer : i == dim ? size : inner) *= input.sizes[static_cast<size_t>(i)];
  }
  const OperandReader reader(input, input.sizes);
  const int64_t grain = std::max<int64_t>(1, elementwise_grain / std::max<int64_t>(size, 1));
  dispatch<Types::all>(input.dtype, [&]<typename In>() {
    dispatch<Types::all>(out.dtype, [&]<typename Out>() {
      using Acc = std::conditional_t<std::is_floating_point_v<Out>, double, int64_t>;
      call.pool.run_ranges(outer * inner, grain, [&](int64_t begin, int64_t end) {
        std::byte scratch[OperandReader::scratch_bytes];
        for (int64_t row = begin; row < end; ++row) {
          Acc sum = 0;
          for (int64_t k = 0; k < size; ++k) {
            const int64_t at = (row / inner * size + k) * inner + row % inner;
            sum += static_cast<Acc>(*reinterpret_cast<const In*>(reader.read(at, 1, scratch)));
            out.as<Out>()[at] = static_cast<Out>(sum);
          }
        }
      });
    });
  });
}

std::vector<Sample> scan_samples() {
  std::vector<Sample> samples;
  const auto add = [&](SampleOperand operand, int64_t dim) {
    samples.push_back({{std::move(operand)}, {{"dim", dim}}});
  };
  add(reals({3, 5}), 1);
  add(reals({3, 5, 7}), -1);
  add(reals({4, 5, 6}), 0);
  add(reals({5, 301, 3}), 1);
  add(reals({2, 40000}), 1);
  add(reals({40000, 3}), 0);
  add(reals({1}), 0);
  for (const DType dtype : {DType::i32, DType::i16, DType::i8, DType::u8, DType::boolean}) {
    add(sample(dtype, {4, 9}, {-6, 6}), 1);
  }
  return samples;
}

}  // namespace

std::span<const OpDef> scan() {
  static const std::vector<OpDef> rows = {
      {.name = "cumsum",
       .operands = "self",
       .results = "out",
       .doc = "sums from the front of a dimension up to each element",
       .kind = Kind::reduction,
       .attrs = {integer("dim"), maybe(data_type("dtype"))},
       .aten = {{"cumsum", "self | dim, dtype"}},
       .infer = infer_cumsum,
       .cost = scan_cost,
       .cpu = run_cumsum,
       .samples = scan_samples()},
  };
  return rows;
}

}  // namespace tessera::families
