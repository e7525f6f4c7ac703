// Where in the user's program something was written, as far as a front end could tell.
#pragma once

#include <string>

namespace tessera {

struct SourcePlace {
  std::string file;  // empty: not known
  int line = 0;
  std::string module;  // dotted path of the nn.Module whose forward was running

  bool operator==(const SourcePlace&) const = default;
};

}  // namespace tessera
