// Machine code made at compile time of a model. Its pages are written first and then made
// executable, never both at once. Only x86-64 with AVX2 runs it.
#pragma once

#include <xbyak/xbyak.h>

#include <cstddef>

namespace tessera::cpu {

class GeneratedCode : public Xbyak::CodeGenerator {
 public:
  template <typename Function>
  Function entry() const {
    return getCode<Function>();
  }

 protected:
  // Pages that the code does not reach are never touched; Xbyak throws where it needs more.
  explicit GeneratedCode(size_t bytes = size_t{64} << 10)
      : CodeGenerator(bytes, Xbyak::DontSetProtectRWE) {}

  // After the last instruction.
  void finish() { setProtectModeRE(); }
};

}  // namespace tessera::cpu
