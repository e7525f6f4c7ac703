// The text of a graph: parsed, checked against the operator table, printed and parsed again.
#include <cstdlib>

#include "tessera/ir/text.h"
#include "tessera/passes/read_graph.h"
#include "tests/readers/refused.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  refused_or([&] {
    const std::string text = print(parse({reinterpret_cast<const char*>(data), size}));
    if (print(parse(text)) != text) std::abort();
    read_graph(text);
  });
  return 0;
}
