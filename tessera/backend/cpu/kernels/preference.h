// Which of an operator's fast kernels is to be preferred: one ordered list for each operator,
// whatever family or library its kernels belong to.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tessera/backend/cpu/kernels/table.h"

namespace tessera::cpu {

// Names of entries, the best first; empty where there is no fast kernel on any machine.
std::span<const std::string_view> preferred_kernels(std::string_view op);

// Brings the entries of one operator into that order.
void sort_by_preference(std::vector<const KernelEntry*>& entries);

// Error where no entry has that name on any machine; `variable` is what the user wrote it into.
void check_kernel_name(std::string_view name, std::string_view variable);

}  // namespace tessera::cpu
