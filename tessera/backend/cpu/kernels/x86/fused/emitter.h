// Writes the instructions of a fused body for one vector of eight elements: which value lies in
// which register, what is kept on the stack when there are too few, constants.
//
// A value is an operand or the result of a step. Numbers are floats or integers of 32 bits, truth
// values are lanes of all ones or all zeros.
#pragma once

#include <xbyak/xbyak.h>

#include <array>
#include <cstdint>
#include <deque>
#include <variant>
#include <vector>

namespace tessera::cpu {

class FusedEmitter {
 public:
  using Ymm = Xbyak::Ymm;
  using Value = size_t;
  using Lanes = std::array<uint32_t, 8>;

  static constexpr size_t most_values = 80;
  static constexpr int slot_bytes = 32;
  static constexpr int slots_bytes = static_cast<int>(most_values) * slot_bytes;

  // A register or a place in memory, wherever a value is now.
  class Source {
   public:
    explicit Source(const Ymm& reg) : place_(reg) {}
    explicit Source(const Xbyak::Address& address) : place_(address) {}
    operator const Xbyak::Operand&() const {  // NOLINT: stands for an instruction's operand
      return std::visit([](const auto& at) -> const Xbyak::Operand& { return at; }, place_);
    }

   private:
    std::variant<Ymm, Xbyak::Address> place_;
  };

  FusedEmitter(Xbyak::CodeGenerator& code, size_t values) : code_(code), values_(values) {}

  Xbyak::CodeGenerator& code() { return code_; }

  // --- for instructions ---

  // The value in a register. It stays there, and what a register holds must not be changed, until
  // the step ends.
  Ymm reg(Value value);
  // The same without a load where the value lies in memory.
  Source source(Value value);
  // A register to write to, until the step ends or release().
  Ymm fresh();
  void release(const Ymm& reg);
  Xbyak::Address number(float value);
  Xbyak::Address integer(uint32_t value);
  Xbyak::Address lanes(const Lanes& bits);
  Ymm load(const Xbyak::Address& address);  // into a fresh register

  // --- for the loop around them ---

  // Uses as positions in the order of steps; a value is forgotten after its last one.
  void set_uses(Value value, std::vector<size_t> positions);
  // Forgets what registers hold, apart from fixed values.
  void begin_vector();
  void begin_step(size_t position);
  // Registers of the step are free again; the value, if there is one, has its result.
  void end_step();
  // The same while values are still to be stored: none is forgotten.
  void end_result();
  void define(Value value, const Ymm& reg);
  bool known(Value value) const { return values_[value].reg >= 0 || values_[value].in_slot; }
  // Lies in its slot, for the whole row.
  void fix_in_slot(Value value);
  // And in a register too.
  void fix_in_register(Value value, int reg);
  int fixed_register(Value value) const { return values_[value].reg; }
  void reserve(int reg) { owner_[static_cast<size_t>(reg)] = reserved; }
  Xbyak::Address slot(size_t number) const;
  void write_constants();

 private:
  static constexpr int nobody = -1, scratch = -2, reserved = -3;

  struct State {
    int reg = -1;
    bool in_slot = false, fixed = false, locked = false;
    std::vector<size_t> uses = {};
  };

  size_t next_use(const State& state) const;
  void drop_dead();
  int free_register();

  struct Constant {
    Lanes bits{};
    Xbyak::Label label;
  };

  Xbyak::CodeGenerator& code_;
  std::vector<State> values_;
  std::array<int, 16> owner_ = filled();
  std::deque<Constant> constants_;  // labels must not move
  size_t position_ = 0;

  static std::array<int, 16> filled() {
    std::array<int, 16> owners{};
    owners.fill(nobody);
    return owners;
  }
};

}  // namespace tessera::cpu
