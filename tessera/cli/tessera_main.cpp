#include <iostream>

#include "tessera/cli/command_line.h"

int main(int argc, char** argv) {
  return tessera::run_command_line({argv, argv + argc}, std::cin, std::cout, std::cerr);
}
