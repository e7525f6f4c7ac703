// Walks the operator table: results lie in memory as PyTorch lays them out, for operands in many
// layouts. Which later views share memory, and what changes in place reach, follows from it.
#include <gtest/gtest.h>

#include "tessera/base/geometry.h"
#include "tessera/torch/capture.h"
#include "tests/torch_parity/table_call.h"

namespace tessera {
namespace {

// A call's operands over flat parameters, seen in the layout inside forward as users would make it.
struct LaidOut {
  std::vector<at::Tensor> tensors = {};
  std::vector<NamedTensor> flat = {};

  LaidOut(const Call& call, Layout layout) {
    for (const at::Tensor& tensor : tensors_of(call)) {
      tensors.push_back(laid_out(tensor, layout, tensors.empty()));
      const at::Tensor& last = tensors.back();
      const Geometry geometry{shape_of(last), last.strides().vec(), 0};
      flat.push_back(
          {fmt::format("x{}", flat.size()), last.as_strided({extent(geometry)}, {1}).clone()});
    }
  }

  std::vector<at::Tensor> windows() const {
    std::vector<at::Tensor> seen;
    for (size_t i = 0; i < flat.size(); ++i) {
      seen.push_back(flat[i].tensor.as_strided(tensors[i].sizes(), tensors[i].strides()));
    }
    return seen;
  }
};

void compare_layouts(const Call& call, const LaidOut& operands, const std::string& results) {
  std::vector<at::Tensor> theirs;
  try {
    theirs = invoke(call, operands.tensors);
  } catch (const std::exception&) {
    return;  // not made for such operands
  }
  // Not what the call writes into.
  if (call.op.schema().name().ends_with("_")) return;
  std::vector<at::Tensor> ours;
  CaptureRequest request;
  request.parameters = operands.flat;
  request.forward = [&](const std::vector<at::Tensor>&) {
    ours = invoke(call, operands.windows());
    return ours;
  };
  ASSERT_NO_THROW(capture(request));
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < theirs.size(); ++i) {
    if (theirs[i].numel() == 0) continue;
    if (!memory_order(geometry_of(theirs[i]))) continue;  // a program's values have no gaps
    EXPECT_EQ(ours[i].strides(), theirs[i].strides())
        << "result " << i << " of " << results << ", shape " << theirs[i].sizes();
  }
}

class Layouts : public testing::TestWithParam<const OpDef*> {};

TEST_P(Layouts, ArePyTorchs) {
  const OpDef& row = *GetParam();
  for (const AtenSpelling& spelling : spellings_here(row)) {
    for (size_t s = 0; s < row.samples.size(); ++s) {
      at::manual_seed(s + 1);
      const auto call = spelled(row, spelling, row.samples[s], Layout::dense);
      if (!call || tensors_of(*call).empty()) continue;
      for (const Layout layout : {Layout::dense, Layout::transposed, Layout::stepped, Layout::mixed,
                                  Layout::channels_last, Layout::rotated, Layout::expanded}) {
        if (layout != Layout::dense && takes_dense_only(spelling)) continue;
        if (layout == Layout::expanded && !spelling.hidden_mutations.empty()) continue;
        SCOPED_TRACE(
            fmt::format("{} sample {} layout {}", spelling.overload, s, static_cast<int>(layout)));
        compare_layouts(*call, LaidOut(*call, layout), row.results);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, Layouts, testing::ValuesIn(all_ops()),
                         [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace tessera
