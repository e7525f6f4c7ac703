// How a reader may end: it does what it should, or throws an Error. Everything else is a defect.
#pragma once

#include "tessera/base/error.h"

namespace tessera {

template <typename Read>
void refused_or(const Read& read) {
  try {
    read();
  } catch (const Error&) {
  }
}

}  // namespace tessera
