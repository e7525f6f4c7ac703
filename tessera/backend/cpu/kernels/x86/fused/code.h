// The loop over one row of a fused body as machine code.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tessera/backend/cpu/kernels/x86/fused/instructions.h"
#include "tessera/backend/cpu/kernels/x86/fused/space.h"
#include "tessera/backend/cpu/kernels/x86/generated_code.h"

namespace tessera::cpu {

// Where a row begins. Sums are added to: one double for the row, eight for lanes, one for each
// column, padded to whole vectors.
struct FusedRow {
  // Of a whole body or of a stage of one, which has values of the tile too.
  static constexpr size_t most_operands = FusedEmitter::most_values,
                          most_results = FusedEmitter::most_values, most_sums = 8;

  int64_t vectors = 0;  // whole ones
  int64_t tail = 0;     // elements after them, less than eight
  std::array<const std::byte*, most_operands> operands{};
  std::array<std::byte*, most_results> results{};
  std::array<double*, most_sums> sums{};
};

class FusedCode : public GeneratedCode {
 public:
  FusedCode(const FusedBody& body, const FusedSpace& space);

  void run(const FusedRow& row) const { entry<void (*)(const FusedRow*)>()(&row); }

 private:
  using Value = FusedEmitter::Value;

  Value value_of(const BodyValue& value) const;
  void plan_uses();
  void plan_registers();
  void write_prologue();
  void write_row_constants();
  void write_loop();
  void write_epilogue();

  // One vector; `number` counts within an unrolled loop, `tail` masks lanes away.
  void write_vector(int number, bool tail);
  void write_step(size_t index);
  void load_operand(size_t index, int number, bool tail);
  void load_bytes(const Xbyak::Ymm& to, const Xbyak::Reg64& base, int number, bool tail);
  void add_to_sum(size_t index, const BodyResult& result, int number, bool tail);
  void store_result(size_t index, const BodyResult& result, int number, bool tail);
  void store_bytes(const Xbyak::Ymm& mask, const Xbyak::Reg64& base, int number, bool tail);
  void advance(int vectors);

  // A register that holds the pointer; rax where there are not enough.
  Xbyak::Reg64 pointer(size_t stream);
  bool walks(size_t operand) const;  // has a pointer of its own that moves
  Xbyak::Address walker(size_t operand) const;
  Xbyak::Address mask_slot() const;
  Xbyak::Address sum_slot(size_t number) const;
  size_t sum_count() const;

  const FusedBody& body_;
  const FusedSpace& space_;
  std::vector<EmitStep> steps_;
  FusedEmitter emitter_;
  int sum_registers_ = -1;  // the first of two for each sum; in slots where not
};

}  // namespace tessera::cpu
