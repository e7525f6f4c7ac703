#include "tessera/kernels/elementwise.h"

#include <algorithm>
#include <array>

#include "tessera/base/error.h"
#include "tessera/base/scratch.h"
#include "tessera/kernels/operand_reader.h"

namespace tessera {
namespace {

constexpr size_t max_operands = 8;

struct Scratch {
  alignas(64) std::byte bytes[max_operands][OperandReader::scratch_bytes];
};

void run_range(std::span<const OperandReader> readers, int64_t begin, int64_t end, bool all_dense,
               BlockWork work, const void* context) {
  Scratch scratch;
  std::array<const std::byte*, max_operands> blocks{};
  const int64_t step = all_dense ? end - begin : OperandReader::block;
  for (int64_t at = begin; at < end; at += step) {
    const int64_t count = std::min(step, end - at);
    for (size_t i = 0; i < readers.size(); ++i) {
      // A uniform operand fills its scratch once: the first block is the longest.
      if (at != begin && readers[i].uniform()) continue;
      blocks[i] = readers[i].read(at, count, scratch.bytes[i]);
    }
    work(context, blocks.data(), at, count);
  }
}

}  // namespace

void for_each_block(ThreadPool& pool, std::span<const TensorView> operands,
                    std::span<const int64_t> shape, BlockWork work, const void* context) {
  TESSERA_INVARIANT(operands.size() <= max_operands, "a map of {} operands", operands.size());
  ScratchVector<OperandReader> readers;
  readers.reserve(operands.size());
  bool all_dense = true;
  for (const TensorView& operand : operands) {
    readers.emplace_back(operand, shape);
    all_dense = all_dense && readers.back().dense();
  }
  pool.run_ranges(numel(shape), elementwise_grain, [&](int64_t begin, int64_t end) {
    run_range(readers, begin, end, all_dense, work, context);
  });
}

}  // namespace tessera
