// The cores of a machine, shared by the instances on it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera {

// Those that this process may use, neighbours side by side: first by memory, then by core, so that
// the two threads of a core are never cut apart without need.
std::vector<int> usable_cores();

// Of the cores, the part of one of `count` instances. More instances than cores take turns.
std::vector<int> share_of_cores(std::span<const int> cores, int64_t index, int64_t count);

// Keeps this process and its children to the cores. What the kernel refuses is left as it was.
void bind_to_cores(std::span<const int> cores);

// 0-3,8
std::string core_list(std::vector<int> cores);

}  // namespace tessera
