// A fused body in which some steps have no instructions, as stages that run one after the other
// over a tile of some rows: generated code, and calls of the kernels of those steps' rows. What
// passes from one stage to another lies in the tile, which stays in the first-level cache.
//
// Only the last stage stores results and adds to sums: everything of a tile is read before, so that
// a result may lie over an operand.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "tessera/backend/cpu/kernels/x86/fused/code.h"
#include "tessera/base/scratch.h"
#include "tessera/base/thread_pool.h"

namespace tessera::cpu {

class FusedStages {
  // Where a stage finds or leaves a value.
  struct Place {
    enum class In : uint8_t { row, tile, number };

    In in = In::row;
    size_t index = 0;  // an operand or a result of the whole body; a slot; an argument
    DType dtype = DType::f32;

    bool operator==(const Place&) const = default;
  };

 public:
  // Elements of a tile, row after row without gaps; and the most rows of one.
  static constexpr int64_t tile_elements = 1024;
  static constexpr size_t most_rows = 32;

  // `called` are the steps without instructions, `single` the operands of one element; kernels are
  // called at `level`. The space is that of the whole body.
  FusedStages(const FusedBody& body, const FusedSpace& space, const std::vector<bool>& called,
              const std::vector<bool>& single, CpuLevel level);

  // The memory that a thread needs to run tiles.
  class Tile {
   public:
    explicit Tile(const FusedStages& stages);

    // A row of the whole body. Rows are run when there are enough of them; all between two calls of
    // flush() have the same number of elements.
    void add(const FusedRow& row);
    void flush();

   private:
    void push(const FusedRow& row, int64_t begin, int64_t elements);
    std::byte* slot(size_t number, size_t row, DType dtype);
    void repeat_first(const Place& place);

    const FusedStages& stages_;
    ScratchVector<std::byte> memory_;
    ScratchVector<FusedRow> rows_;
    size_t count_ = 0;
    int64_t elements_ = 0;  // of each row
    ThreadPool alone_;

    friend class FusedStages;
  };

 private:
  struct Code {
    FusedBody body;
    FusedSpace space;
    std::vector<size_t> numbers;  // of its steps in the whole body
    std::vector<Place> operands, results;
    bool last = false;
    std::unique_ptr<const FusedCode> code = nullptr;
  };
  struct Call {
    void (*kernel)(const KernelCall&);
    Attrs attrs;
    std::vector<Place> arguments;
    std::vector<std::array<std::byte, 4>> numbers;  // by argument
    Place result;
  };
  struct Stage {
    std::unique_ptr<Code> code = nullptr;
    std::unique_ptr<const Call> call = nullptr;
  };

  class Builder;

  void run(const Code& code, Tile& tile) const;
  void run(const Call& call, Tile& tile) const;

  const FusedSpace& space_;
  const CpuLevel level_;
  std::vector<Stage> stages_;
  size_t slots_ = 0;
  bool one_element_ = false;  // in all
};

}  // namespace tessera::cpu
