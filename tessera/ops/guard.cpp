// Values that a program must look at before it goes on, because PyTorch does: the value comes out
// as it went in, or an Error in PyTorch's words.
#include <limits>

#include "tessera/base/error.h"
#include "tessera/kernels/dispatch.h"
#include "tessera/ops/families.h"
#include "tessera/ops/row_parts.h"
#include "tessera/ops/rows.h"

namespace tessera {
namespace {

using namespace row_parts;

std::vector<TensorType> infer_require(const OpView& op) { return {op.type(0)}; }

// NaN passes: PyTorch's checks compare, too.
void run_require(const KernelCall& call) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double low = call.attrs.has("low") ? call.attrs.number("low") : -infinity;
  const double high = call.attrs.has("high") ? call.attrs.number("high") : infinity;
  const auto& too_low = call.attrs.text("too_low");
  const auto& too_high = call.attrs.text("too_high");
  dispatch<Types::all>(call.outputs[0].dtype, [&]<typename T>() {
    rows::map_equal_types<T, T, 1>(call, [&](T x) {
      check(!(static_cast<double>(x) < low), "{} (got {})", too_low, x);
      check(!(static_cast<double>(x) > high), "{} (got {})", too_high, x);
      return x;
    });
  });
}

std::vector<OpDef> make_rows() {
  const Attrs bounds = {{"low", -2.0}, {"high", 2.0}};
  return {{.name = "require",
           .operands = "self",
           .results = "out",
           .doc = "self, of which no element may be below low or above high.",
           .attrs = {maybe(number("low")), maybe(number("high")), text("too_low", "too low"),
                     text("too_high", "too high")},
           .aten = {{"poptorch::require", "self | low, high, too_low, too_high"}},
           .traits = {.in_place = {{0, 0}}, .runs_alone = true},
           .infer = infer_require,
           .cost = rows::elementwise_cost<1>,
           .cpu = run_require,
           .samples = {Sample{{reals({3, 5})}, bounds}, Sample{{integers({7})}, bounds},
                       Sample{{sample(DType::u8, {4})}}, Sample{{reals({17, 1003})}, bounds}}}};
}

}  // namespace

std::span<const OpDef> families::guard() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera
