#include <iostream>

#include "tessera/cli/device_programs.h"

int main(int argc, char** argv) {
  return tessera::run_gc_monitor({argv, argv + argc}, std::cout, std::cerr);
}
