// native.h for machines that no folder of kernels is written for: reference kernels run everything,
// and they interpret fused bodies, whatever is in them.
#include "tessera/backend/cpu/kernels/native.h"

namespace tessera::cpu {

std::vector<KernelEntry> native_entries() { return {}; }

std::vector<KernelEntry> native_halves_entries(const OpDef&, std::span<const KernelEntry* const>) {
  return {};
}

std::vector<KernelEntry> native_map_entries(const OpDef&, std::span<const KernelEntry* const>) {
  return {};
}

bool can_fuse(const BodyStep&, std::span<const DType>) { return true; }

// All steps are alike: bodies are those of a machine that has code for every one.
bool has_code(const BodyStep&, std::span<const DType>) { return true; }

TransposeBlock native_transpose(CpuLevel) { return nullptr; }
TransposeHalves native_transpose_of_halves(CpuLevel) { return nullptr; }

}  // namespace tessera::cpu
