#include <iostream>

#include "tessera/launch/poprun.h"

int main(int argc, char** argv) {
  return tessera::run_poprun({argv, argv + argc}, std::cout, std::cerr);
}
