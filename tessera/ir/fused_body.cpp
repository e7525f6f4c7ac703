#include "tessera/ir/fused_body.h"

#include <bit>

namespace tessera {

bool BodyValue::operator==(const BodyValue& other) const {
  return from == other.from && index == other.index && dtype == other.dtype &&
         std::bit_cast<uint64_t>(number) == std::bit_cast<uint64_t>(other.number);
}

}  // namespace tessera
