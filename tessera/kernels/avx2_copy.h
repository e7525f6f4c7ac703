// Marks the copy of a function that is compiled for AVX2 with FMA and F16C, to be called at
// CpuLevel::avx2 and above. On machines of another kind it is a second copy of the same code, which
// nobody calls.
#pragma once

#if defined(__x86_64__)
#define TESSERA_AVX2_COPY __attribute__((target("avx2,fma,f16c")))
#define TESSERA_AVX2_COPY_INLINE __attribute__((target("avx2,fma,f16c"), always_inline)) inline
#else
#define TESSERA_AVX2_COPY
#define TESSERA_AVX2_COPY_INLINE inline
#endif
