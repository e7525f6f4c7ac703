// Conversions that round by chance (base/stochastic_rounding.h). An element's chance depends on its
// place in row-major order, and so neither on threads nor on what it is computed together with.
#include "tessera/base/error.h"
#include "tessera/base/stochastic_rounding.h"
#include "tessera/kernels/elementwise.h"
#include "tessera/ops/families.h"
#include "tessera/ops/row_parts.h"
#include "tessera/ops/rows.h"

namespace tessera::families {
namespace {

using namespace row_parts;

std::vector<TensorType> infer_stochastic_cast(const OpView& op) {
  check(op.type(0).dtype == DType::f32, ErrorKind::type, "stochastic_cast rounds f32, not {}",
        name_of(op.type(0).dtype));
  return {{DType::f16, op.shape(0)}};
}

void run_stochastic_cast(const KernelCall& call) {
  struct Context {
    RoundingStream stream;
    int64_t first;
    Half* out;
  };
  expect_elements<float>(call.inputs);
  const auto key = static_cast<uint64_t>(call.attrs.integer("key"));
  const Context context{rounding_stream(call.rng, key), call.first_element,
                        call.outputs[0].as<Half>()};
  const auto work = [](const void* erased, const std::byte* const* blocks, int64_t begin,
                       int64_t count) {
    const auto& c = *static_cast<const Context*>(erased);
    const auto* in = reinterpret_cast<const float*>(blocks[0]);
    for (int64_t i = 0; i < count; ++i) {
      const auto element = static_cast<uint32_t>(c.first + begin + i);
      c.out[begin + i] = to_half(in[i], rounding_word(c.stream, element));
    }
  };
  for_each_block(call.pool, call.inputs, call.outputs[0].sizes, work, &context);
}

}  // namespace

std::span<const OpDef> rounding() {
  static const std::vector<OpDef> rows = {
      {.name = "stochastic_cast",
       .operands = "self",
       .results = "out",
       .doc = "f32 as f16, rounded up or down by chance so that the mean is the number itself",
       .attrs = {large(integer("key"))},
       .traits = {.reads_random_state = true},
       .infer = infer_stochastic_cast,
       .cost = rows::elementwise_cost<16>,
       .cpu = run_stochastic_cast,
       .samples = {Sample{{reals({3, 7})}, {{"key", attr(5)}}},
                   Sample{{reals({40, 1003}, {-1e-5, 1e-5})}, {{"key", attr(-1)}}}}},
  };
  return rows;
}

}  // namespace tessera::families
