// Elements as words of their width, for kernels that move them without looking at them.
#pragma once

#include "tessera/base/error.h"
#include "tessera/base/tensor_view.h"

namespace tessera::kernels {

template <typename Word>
Word* words_of(const TensorView& tensor) {
  TESSERA_INVARIANT(sizeof(Word) == size_of(tensor.dtype), "{} is not {} bytes wide",
                    name_of(tensor.dtype), sizeof(Word));
  return reinterpret_cast<Word*>(tensor.data);
}

}  // namespace tessera::kernels
