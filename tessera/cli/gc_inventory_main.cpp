#include <iostream>

#include "tessera/cli/device_programs.h"

int main(int argc, char** argv) {
  return tessera::run_gc_inventory({argv, argv + argc}, std::cout, std::cerr);
}
