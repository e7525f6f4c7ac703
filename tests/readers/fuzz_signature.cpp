// The text of a signature: parsed, printed and parsed again.
#include <cstdlib>

#include "tessera/runtime/step_signature.h"
#include "tests/readers/refused.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  refused_or([&] {
    const StepSignature signature = parse_signature({reinterpret_cast<const char*>(data), size});
    if (parse_signature(print(signature)) != signature) std::abort();
  });
  return 0;
}
