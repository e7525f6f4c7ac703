#include <iostream>

#include "tessera/cli/command_line.h"

#ifdef TESSERA_WITH_TORCH
#include "tessera/torch/host_call.h"
#endif

int main(int argc, char** argv) {
#ifdef TESSERA_WITH_TORCH
  tessera::use_pytorch_for_host_calls();
#endif
  return tessera::run_command_line({argv, argv + argc}, std::cin, std::cout, std::cerr);
}
