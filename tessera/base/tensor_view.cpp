#include "tessera/base/tensor_view.h"

#include "tessera/base/error.h"

namespace tessera {

void fail_other_elements(DType dtype, size_t bytes_read) {
  TESSERA_UNREACHABLE("elements of type {} are read as another type of {} bytes", name_of(dtype),
                      bytes_read);
}

}  // namespace tessera
