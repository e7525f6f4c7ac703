// Networks by name, for who has not measured one.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/cli/scale_model.h"

namespace tessera {

struct Network {
  std::string_view name;
  Link link;
  std::string_view source;  // where the figures are from
};

std::span<const Network> networks();
const Network& network_named(std::string_view name);  // Error where there is none

std::string list_of_networks();

}  // namespace tessera
