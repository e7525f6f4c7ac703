// The loop over one row of a fused body as machine code.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/backend/cpu/kernels/x86/fused/instructions.h"
#include "tessera/backend/cpu/kernels/x86/fused/row.h"
#include "tessera/backend/cpu/kernels/x86/fused/space.h"
#include "tessera/backend/cpu/kernels/x86/generated_code.h"

namespace tessera::cpu {

class FusedCode : public GeneratedCode {
 public:
  // `numbers`: which steps of the whole body its steps are, where it is a stage of one.
  FusedCode(const FusedBody& body, const FusedSpace& space, std::vector<size_t> numbers = {});

  void run(const FusedRow& row) const { entry<void (*)(const FusedRow*)>()(&row); }

 private:
  using Value = FusedEmitter::Value;

  Value value_of(const BodyValue& value) const;
  Value element_number() const { return space_.operands.size() + body_.steps.size(); }
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
  // Halves become the floats that they are; `first` is where the vector's first one lies.
  void load_halves(const Xbyak::Ymm& to, const FusedStream& stream, const Xbyak::RegExp& first,
                   bool tail);
  void load_element_numbers(int number);
  void add_to_sum(size_t index, const BodyResult& result, int number, bool tail);
  void store_result(size_t index, const BodyResult& result, int number, bool tail);
  void store_bytes(const Xbyak::Ymm& mask, const Xbyak::Reg64& base, int number, bool tail);
  void store_halves(const Xbyak::Ymm& x, const Xbyak::Reg64& base, int number, bool tail);
  // Does something for each lane below the tail's length.
  template <typename Work>
  void for_lanes_of_tail(const Work& work);
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
  const std::vector<size_t> numbers_;
  std::vector<EmitStep> steps_;
  FusedEmitter emitter_;
  int sum_registers_ = -1;  // the first of two for each sum; in slots where not
};

}  // namespace tessera::cpu
