// For loops that wait for another thread without sleeping.
#pragma once

namespace tessera {

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace tessera
