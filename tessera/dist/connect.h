// The one link of this process to the other instances of its program, by MPI.
#pragma once

#include <memory>
#include <string>

#include "tessera/dist/link.h"

namespace tessera::dist {

struct Connecting {
  LinkSettings settings = {};
  std::string library = {};  // that speaks MPI; empty: the one that came with this build
};

// Joins the others; the first call waits for all of them, later ones give the same link. Error
// where MPI is not installed or cannot begin. When the process exits, it says goodbye, or where its
// exit code is not 0, that it failed.
std::shared_ptr<Link> connect(const Connecting& connecting);

// Null before connect().
std::shared_ptr<Link> connected();

}  // namespace tessera::dist
