#include "tessera/backend/cpu/kernels/x86/fused/code.h"

#include <algorithm>
#include <cstddef>

#include "tessera/base/error.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

using Xbyak::Address;
using Xbyak::Reg64;
using Xbyak::Xmm;
using Xbyak::Ymm;

constexpr int vector_bytes = 32, half_vector_bytes = 16;
// Steps beyond which a loop is not unrolled: the loop itself costs little then.
constexpr size_t unrolled_by_four = 6, unrolled_by_two = 16;
// Registers that a step may need for itself: elementary functions, everything else.
constexpr size_t registers_for_functions = 9, registers_for_arithmetic = 4;
constexpr double function_flops = 15;  // the price from which a row is an elementary function

// The stack: slots of values, the tail's mask, sums, pointers that move, the next element's number.
constexpr int mask_offset = FusedEmitter::slots_bytes;
constexpr int sums_offset = mask_offset + vector_bytes;
constexpr int walkers_offset =
    sums_offset + 2 * static_cast<int>(FusedRow::most_sums) * vector_bytes;
constexpr int element_offset =
    walkers_offset + static_cast<int>(FusedRow::most_operands * sizeof(void*));
constexpr int frame_bytes = element_offset + static_cast<int>(sizeof(int64_t)) + vector_bytes;

bool is_random(const BodyStep& step) { return row_of(step).traits.reads_random_state; }

// So many elements further on, in what rounding words begin with.
uint32_t rounding_steps(int64_t elements) {
  return static_cast<uint32_t>(elements) * RoundingWord::step;
}

}  // namespace

FusedCode::FusedCode(const FusedBody& body, const FusedSpace& space, std::vector<size_t> numbers)
    : GeneratedCode(size_t{256} << 10),
      body_(body),
      space_(space),
      numbers_(std::move(numbers)),
      emitter_(*this, space.operands.size() + body.steps.size() + 1) {
  std::vector<DType> operands;
  for (const FusedStream& operand : space.operands) operands.push_back(operand.dtype);
  for (const BodyStep& step : body.steps) {
    steps_.push_back(find_instruction(step, argument_types(body, step, operands)));
  }
  plan_uses();
  plan_registers();
  write_prologue();
  write_row_constants();
  write_loop();
  write_epilogue();
  emitter_.write_constants();
  finish();
}

FusedCode::Value FusedCode::value_of(const BodyValue& value) const {
  return value.index + (value.from == BodyValue::From::step ? space_.operands.size() : 0);
}

size_t FusedCode::sum_count() const {
  return static_cast<size_t>(std::count_if(body_.results.begin(), body_.results.end(),
                                           [](const BodyResult& r) { return r.summed; }));
}

// Positions: the steps, then the results.
void FusedCode::plan_uses() {
  std::vector<std::vector<size_t>> uses(element_number() + 1);
  for (size_t i = 0; i < body_.steps.size(); ++i) {
    for (const BodyValue& value : body_.steps[i].arguments) {
      if (value.from != BodyValue::From::number) uses[value_of(value)].push_back(i);
    }
    if (is_random(body_.steps[i])) uses[element_number()].push_back(i);
  }
  for (size_t i = 0; i < body_.results.size(); ++i) {
    uses[value_of(body_.results[i].value)].push_back(body_.steps.size() + i);
  }
  for (size_t i = 0; i < uses.size(); ++i) emitter_.set_uses(i, std::move(uses[i]));
}

// What is the same in a whole row has registers of its own as long as enough are left.
void FusedCode::plan_registers() {
  size_t needed = registers_for_arithmetic;
  for (const BodyStep& step : body_.steps) {
    if (flops_per_element(step) >= function_flops) needed = registers_for_functions;
  }
  // Values that wait while others are made: a rough bound is enough, the emitter can spill.
  needed += std::min<size_t>(4, 1 + body_.steps.size() / 4);
  size_t left = 16 - needed;
  int next = 15;
  const bool in_registers =
      space_.sums == FusedSpace::Sums::row || space_.sums == FusedSpace::Sums::lanes;
  if (in_registers && 2 * sum_count() <= left) {
    left -= 2 * sum_count();
    for (size_t i = 0; i < 2 * sum_count(); ++i) emitter_.reserve(next--);
    sum_registers_ = next + 1;
  }
  for (size_t i = 0; i < space_.operands.size(); ++i) {
    if (!space_.operands[i].constant_in_row()) continue;
    if (left > 0) {
      emitter_.fix_in_register(i, next--);
      --left;
    } else {
      emitter_.fix_in_slot(i);
    }
  }
}

Reg64 FusedCode::pointer(size_t stream) {
  static constexpr int registers[] = {8, 9, 10, 11, 12, 13, 14, 15, 3};  // r8 to r15, rbx
  if (stream < std::size(registers)) return Reg64(registers[stream]);
  const size_t operands = space_.operands.size();
  const size_t offset = stream < operands
                            ? offsetof(FusedRow, operands) + stream * sizeof(void*)
                            : offsetof(FusedRow, results) + (stream - operands) * sizeof(void*);
  mov(rax, ptr[rdi + static_cast<int>(offset)]);
  return rax;
}

bool FusedCode::walks(size_t operand) const {
  const FusedStream& stream = space_.operands[operand];
  return !stream.constant_in_row() && !stream.dense();
}

Address FusedCode::walker(size_t operand) const {
  return qword[rsp + walkers_offset + static_cast<int>(operand * sizeof(void*))];
}

Address FusedCode::mask_slot() const { return ptr[rsp + mask_offset]; }

Address FusedCode::sum_slot(size_t number) const {
  return ptr[rsp + sums_offset + static_cast<int>(number) * vector_bytes];
}

void FusedCode::write_prologue() {
  for (const int reg : {3, 5, 12, 13, 14, 15}) push(Reg64(reg));
  mov(rbp, rsp);
  sub(rsp, frame_bytes);
  and_(rsp, -vector_bytes);
  const size_t operands = space_.operands.size();
  for (size_t i = 0; i < operands + space_.results.size(); ++i) {
    const size_t offset = i < operands
                              ? offsetof(FusedRow, operands) + i * sizeof(void*)
                              : offsetof(FusedRow, results) + (i - operands) * sizeof(void*);
    const Reg64 base = pointer(i);
    if (base.getIdx() != rax.getIdx()) mov(base, ptr[rdi + static_cast<int>(offset)]);
    if (i < operands && walks(i)) mov(walker(i), base);
  }
  mov(rcx, ptr[rdi + static_cast<int>(offsetof(FusedRow, vectors))]);
  xor_(esi, esi);  // bytes of numbers behind us
  xor_(edx, edx);  // bytes of truth values
  if (!space_.element) return;
  mov(rax, ptr[rdi + static_cast<int>(offsetof(FusedRow, first_element))]);
  imul(eax, eax, static_cast<int>(RoundingWord::step));
  mov(dword[rsp + element_offset], eax);
}

void FusedCode::write_row_constants() {
  for (size_t i = 0; i < space_.operands.size(); ++i) {
    const FusedStream& stream = space_.operands[i];
    if (!stream.constant_in_row()) continue;
    const Reg64 base = pointer(i);
    const Ymm y = ymm0;
    if (stream.dtype == DType::f16) {
      load_halves(y, stream, base, false);
    } else if (stream.dtype != DType::boolean) {
      if (stream.lane_stride == 0) {
        vbroadcastss(y, ptr[base]);
      } else if (stream.lane_stride == 1) {
        vmovups(y, ptr[base]);
      } else {
        for (int lane = 0; lane < 8; ++lane) {
          mov(esi, ptr[base + static_cast<int>(stream.lane_stride) * lane * 4]);
          mov(ptr[rsp + static_cast<int>(i) * vector_bytes + lane * 4], esi);
        }
        vmovups(y, emitter_.slot(i));
      }
    } else {
      for (int lane = 0; lane < 8; ++lane) {
        movzx(esi, byte[base + static_cast<int>(stream.lane_stride) * lane]);
        neg(esi);
        sbb(esi, esi);
        mov(ptr[rsp + static_cast<int>(i) * vector_bytes + lane * 4], esi);
      }
      vmovups(y, emitter_.slot(i));
    }
    vmovups(emitter_.slot(i), y);
  }
  xor_(esi, esi);
  for (size_t i = 0; i < space_.operands.size(); ++i) {
    if (!space_.operands[i].constant_in_row()) continue;
    const int reg = emitter_.fixed_register(i);
    if (reg >= 0) vmovups(Ymm(reg), emitter_.slot(i));
  }
  if (space_.sums == FusedSpace::Sums::none || space_.sums == FusedSpace::Sums::columns) return;
  for (size_t i = 0; i < 2 * sum_count(); ++i) {
    const Ymm y = sum_registers_ >= 0 ? Ymm(sum_registers_ + static_cast<int>(i)) : ymm0;
    vxorps(y, y, y);
    if (sum_registers_ < 0) vmovups(sum_slot(i), y);
  }
}

void FusedCode::write_loop() {
  const size_t steps = body_.steps.size();
  const int unrolled = steps <= unrolled_by_four ? 4 : steps <= unrolled_by_two ? 2 : 1;
  Xbyak::Label many, many_end, one, one_end, end;
  if (unrolled > 1) {
    L(many);
    cmp(rcx, unrolled);
    jl(many_end, T_NEAR);
    for (int i = 0; i < unrolled; ++i) write_vector(i, false);
    advance(unrolled);
    sub(rcx, unrolled);
    jmp(many, T_NEAR);
    L(many_end);
  }
  L(one);
  test(rcx, rcx);
  jz(one_end, T_NEAR);
  write_vector(0, false);
  advance(1);
  dec(rcx);
  jmp(one, T_NEAR);
  L(one_end);
  if (space_.grouped) return;
  mov(rcx, ptr[rdi + static_cast<int>(offsetof(FusedRow, tail))]);
  test(rcx, rcx);
  jz(end, T_NEAR);
  // Lanes below the tail's length.
  vmovd(xmm0, ecx);
  vpbroadcastd(ymm0, xmm0);
  vpcmpgtd(ymm0, ymm0, emitter_.lanes({0, 1, 2, 3, 4, 5, 6, 7}));
  vmovups(mask_slot(), ymm0);
  write_vector(0, true);
  L(end);
}

void FusedCode::write_epilogue() {
  if (space_.sums == FusedSpace::Sums::row || space_.sums == FusedSpace::Sums::lanes) {
    for (size_t i = 0; i < sum_count(); ++i) {
      const int at = static_cast<int>(2 * i);
      Ymm low = ymm0, high = ymm1;
      if (sum_registers_ >= 0) {
        low = Ymm(sum_registers_ + at);
        high = Ymm(sum_registers_ + at + 1);
      } else {
        vmovups(low, sum_slot(2 * i));
        vmovups(high, sum_slot(2 * i + 1));
      }
      mov(rax, ptr[rdi + static_cast<int>(offsetof(FusedRow, sums) + i * sizeof(double*))]);
      if (space_.sums == FusedSpace::Sums::lanes) {
        vaddpd(low, low, ptr[rax]);
        vmovupd(ptr[rax], low);
        vaddpd(high, high, ptr[rax + vector_bytes]);
        vmovupd(ptr[rax + vector_bytes], high);
        continue;
      }
      vaddpd(low, low, high);
      vextractf128(Xmm(high.getIdx()), low, 1);
      vaddpd(Xmm(low.getIdx()), Xmm(low.getIdx()), Xmm(high.getIdx()));
      vunpckhpd(Xmm(high.getIdx()), Xmm(low.getIdx()), Xmm(low.getIdx()));
      vaddsd(Xmm(low.getIdx()), Xmm(low.getIdx()), Xmm(high.getIdx()));
      vaddsd(Xmm(low.getIdx()), Xmm(low.getIdx()), ptr[rax]);
      vmovsd(ptr[rax], Xmm(low.getIdx()));
    }
  }
  vzeroupper();
  mov(rsp, rbp);
  for (const int reg : {15, 14, 13, 12, 5, 3}) pop(Reg64(reg));
  ret();
}

void FusedCode::advance(int vectors) {
  add(rsi, vectors * vector_bytes);
  add(rdx, vectors * 8);
  for (size_t i = 0; i < space_.operands.size(); ++i) {
    if (!walks(i)) continue;
    const FusedStream& stream = space_.operands[i];
    const int64_t bytes =
        stream.vector_stride * static_cast<int64_t>(size_of(stream.dtype)) * vectors;
    add(walker(i), static_cast<uint32_t>(bytes));
  }
  if (!space_.element) return;
  add(dword[rsp + element_offset], rounding_steps(space_.element->vector_stride * vectors));
}

// Everything is read before anything is stored: a result may lie over an operand.
void FusedCode::write_vector(int number, bool tail) {
  emitter_.begin_vector();
  const auto need = [&](const BodyValue& value) {
    if (value.from == BodyValue::From::operand && !emitter_.known(value.index)) {
      load_operand(value.index, number, tail);
    }
  };
  for (size_t i = 0; i < body_.steps.size(); ++i) {
    emitter_.begin_step(i);
    for (const BodyValue& value : body_.steps[i].arguments) need(value);
    if (is_random(body_.steps[i]) && !emitter_.known(element_number())) {
      load_element_numbers(number);
    }
    write_step(i);
  }
  size_t sums = 0, results = 0;
  for (const bool summed : {true, false}) {
    for (size_t i = 0; i < body_.results.size(); ++i) {
      const BodyResult& result = body_.results[i];
      if (result.summed != summed) continue;
      emitter_.begin_step(body_.steps.size());
      need(result.value);
      if (summed) {
        add_to_sum(sums++, result, number, tail);
      } else {
        store_result(results++, result, number, tail);
      }
      emitter_.end_result();
    }
  }
}

void FusedCode::write_step(size_t index) {
  FusedStep step(emitter_, body_.steps[index], space_.operands.size(), element_number(),
                 numbers_.empty() ? index : numbers_[index]);
  emitter_.define(space_.operands.size() + index, steps_[index](step));
  emitter_.end_step();
}

void FusedCode::load_operand(size_t index, int number, bool tail) {
  const FusedStream& stream = space_.operands[index];
  const Ymm y = emitter_.fresh();
  Reg64 base = rax;
  if (stream.dense()) {
    base = pointer(index);
  } else {
    mov(rax, walker(index));
  }
  const auto step = static_cast<int>(stream.vector_stride);
  if (stream.dtype == DType::boolean) {
    load_bytes(y, base, number, tail);
  } else if (stream.dtype == DType::f16) {
    const int moved = number * step * static_cast<int>(sizeof(Half));
    load_halves(y, stream, stream.dense() ? base + rdx * 2 + moved : rax + moved, tail);
  } else if (stream.dense()) {
    const Address at = ptr[base + rsi + number * vector_bytes];
    if (tail) {
      vmovups(y, mask_slot());
      vmaskmovps(y, y, at);
    } else {
      vmovups(y, at);
    }
  } else if (stream.lane_stride == 0) {
    vbroadcastss(y, ptr[rax + number * step * 4]);
  } else {
    FusedEmitter::Lanes places{};
    for (size_t lane = 0; lane < 8; ++lane) {
      places[lane] = static_cast<uint32_t>(stream.lane_stride) * static_cast<uint32_t>(lane);
    }
    const Ymm indices = emitter_.load(emitter_.lanes(places)), mask = emitter_.fresh();
    if (tail) {
      vmovups(mask, mask_slot());
    } else {
      vpcmpeqd(mask, mask, mask);
    }
    vxorps(y, y, y);
    vgatherdps(y, ptr[rax + indices * 4 + number * step * 4], mask);
    emitter_.release(indices);
    emitter_.release(mask);
  }
  emitter_.define(index, y);
}

template <typename Work>
void FusedCode::for_lanes_of_tail(const Work& work) {
  Xbyak::Label done;
  for (int lane = 0; lane < 7; ++lane) {
    cmp(rcx, lane);
    jle(done, T_NEAR);
    work(lane);
  }
  L(done);
}

// Truth values as bytes: to lanes of all ones or zeros.
void FusedCode::load_bytes(const Ymm& to, const Reg64& base, int number, bool tail) {
  if (tail) {
    const Xmm low(to.getIdx());
    vpxor(low, low, low);
    for_lanes_of_tail(
        [&](int lane) { vpinsrb(low, low, byte[base + rdx + lane], static_cast<uint8_t>(lane)); });
    vpmovzxbd(to, low);
  } else {
    vpmovzxbd(to, ptr[base + rdx + number * 8]);
  }
  const Ymm zero = emitter_.fresh();
  vpxor(zero, zero, zero);
  vpcmpgtd(to, to, zero);
  emitter_.release(zero);
}

void FusedCode::load_halves(const Ymm& to, const FusedStream& stream, const Xbyak::RegExp& first,
                            bool tail) {
  const Xmm low(to.getIdx());
  const auto insert = [&](int lane) {
    const int place = static_cast<int>(stream.lane_stride) * lane * static_cast<int>(sizeof(Half));
    vpinsrw(low, low, ptr[first + place], static_cast<uint8_t>(lane));
  };
  if (stream.lane_stride == 0) {
    vpbroadcastw(low, ptr[first]);
  } else if (tail) {
    vpxor(low, low, low);
    for_lanes_of_tail(insert);
  } else if (stream.lane_stride == 1) {
    vcvtph2ps(to, ptr[first]);
    return;
  } else {
    for (int lane = 0; lane < 8; ++lane) insert(lane);
  }
  vcvtph2ps(to, low);
}

// Row-major numbers of the elements times the step of rounding words, as far as 32 bits hold them.
void FusedCode::load_element_numbers(int number) {
  const FusedStream& stream = *space_.element;
  FusedEmitter::Lanes places{};
  for (size_t lane = 0; lane < 8; ++lane) {
    places[lane] = rounding_steps(stream.vector_stride * number +
                                  stream.lane_stride * static_cast<int64_t>(lane));
  }
  const Ymm y = emitter_.fresh();
  vpbroadcastd(y, dword[rsp + element_offset]);
  vpaddd(y, y, emitter_.lanes(places));
  emitter_.define(element_number(), y);
}

// Eight floats to eight doubles.
void FusedCode::add_to_sum(size_t index, const BodyResult& result, int number, bool tail) {
  Ymm x = emitter_.reg(value_of(result.value));
  if (tail) {
    const Ymm kept = emitter_.fresh();
    vandps(kept, x, mask_slot());
    x = kept;
  }
  const Ymm low = emitter_.fresh(), high = emitter_.fresh();
  vextractf128(Xmm(high.getIdx()), x, 1);
  vcvtps2pd(low, Xmm(x.getIdx()));
  vcvtps2pd(high, Xmm(high.getIdx()));
  if (space_.sums != FusedSpace::Sums::columns && sum_registers_ >= 0) {
    const int at = sum_registers_ + static_cast<int>(2 * index);
    vaddpd(Ymm(at), Ymm(at), low);
    vaddpd(Ymm(at + 1), Ymm(at + 1), high);
    return;
  }
  const bool columns = space_.sums == FusedSpace::Sums::columns;
  if (columns) {
    mov(rax, ptr[rdi + static_cast<int>(offsetof(FusedRow, sums) + index * sizeof(double*))]);
  }
  const int at = number * 2 * vector_bytes;
  const Address first = columns ? ptr[rax + rsi * 2 + at] : sum_slot(2 * index);
  const Address second = columns ? ptr[rax + rsi * 2 + at + vector_bytes] : sum_slot(2 * index + 1);
  vaddpd(low, low, first);
  vmovupd(first, low);
  vaddpd(high, high, second);
  vmovupd(second, high);
}

void FusedCode::store_result(size_t index, const BodyResult& result, int number, bool tail) {
  const Ymm x = emitter_.reg(value_of(result.value));
  const Reg64 base = pointer(space_.operands.size() + index);
  if (space_.results[index].dtype == DType::boolean) return store_bytes(x, base, number, tail);
  if (space_.results[index].dtype == DType::f16) return store_halves(x, base, number, tail);
  const Address at = ptr[base + rsi + number * vector_bytes];
  if (tail) {
    const Ymm mask = emitter_.load(mask_slot());
    vmaskmovps(at, mask, x);
  } else {
    vmovups(at, x);
  }
}

void FusedCode::store_bytes(const Ymm& mask, const Reg64& base, int number, bool tail) {
  const Ymm words = emitter_.fresh();
  const Xmm low(words.getIdx());
  vextractf128(low, mask, 1);
  vpackssdw(low, Xmm(mask.getIdx()), low);
  vpacksswb(low, low, low);
  vpand(low, low, emitter_.integer(0x01010101));
  if (!tail) {
    vmovq(ptr[base + rdx + number * 8], low);
    return;
  }
  for_lanes_of_tail(
      [&](int lane) { vpextrb(byte[base + rdx + lane], low, static_cast<uint8_t>(lane)); });
}

// Lanes are halves already: nothing is rounded here.
void FusedCode::store_halves(const Ymm& x, const Reg64& base, int number, bool tail) {
  if (!tail) {
    vcvtps2ph(ptr[base + rdx * 2 + number * half_vector_bytes], x, 0);
    return;
  }
  const Xmm halves(emitter_.fresh().getIdx());
  vcvtps2ph(halves, x, 0);
  for_lanes_of_tail([&](int lane) {
    vpextrw(ptr[base + rdx * 2 + lane * static_cast<int>(sizeof(Half))], halves,
            static_cast<uint8_t>(lane));
  });
}

}  // namespace tessera::cpu
