// native.h on x86-64. The families of kernels here are declared where they are listed: nobody else
// asks for one.
#include <algorithm>

#include "tessera/backend/cpu/kernels/native.h"
#include "tessera/backend/cpu/kernels/x86/fused/instructions.h"
#include "tessera/backend/cpu/kernels/x86/fused/space.h"
#include "tessera/backend/cpu/kernels/x86/gemm/pack.h"
#include "tessera/backend/cpu/kernels/x86/halves.h"

namespace tessera::cpu {

using Family = std::span<const KernelEntry>();
Family avg_pool_entries, batch8_matmul_entries, batch8_norm_entries, batch8_pool_entries,
    cross_entropy_entries, extremes_entries, few_channels_conv_entries, fused_entries,
    group_norm_entries, layer_norm_entries, max_pool_entries, means_entries, moments_entries,
    narrow_conv_entries, nll_loss_entries, packed_matmul_entries, random_entries, resample_entries,
    softmax_entries, update_entries, update_of_halves_entries, update_of_product_entries,
    winograd_entries;

std::vector<KernelEntry> native_entries() {
  std::vector<KernelEntry> all;
  for (Family* family : {avg_pool_entries,
                         batch8_matmul_entries,
                         batch8_norm_entries,
                         batch8_pool_entries,
                         cross_entropy_entries,
                         extremes_entries,
                         fused_entries,
                         few_channels_conv_entries,
                         group_norm_entries,
                         layer_norm_entries,
                         max_pool_entries,
                         means_entries,
                         moments_entries,
                         narrow_conv_entries,
                         nll_loss_entries,
                         packed_matmul_entries,
                         random_entries,
                         resample_entries,
                         softmax_entries,
                         update_entries,
                         update_of_halves_entries,
                         update_of_product_entries,
                         winograd_entries}) {
    for (KernelEntry entry : family()) {
      // The least that anything in this folder is written for.
      entry.needs = std::max(entry.needs, CpuLevel::avx2);
      all.push_back(entry);
    }
  }
  return all;
}

bool can_fuse(const BodyStep& step, std::span<const DType> arguments) {
  return has_vectors_of(step.dtype) &&
         std::all_of(arguments.begin(), arguments.end(), has_vectors_of);
}

bool has_code(const BodyStep& step, std::span<const DType> arguments) {
  return find_instruction(step, arguments) != nullptr;
}

TransposeBlock native_transpose(CpuLevel level) {
  return level >= CpuLevel::avx2 ? static_cast<TransposeBlock>(transpose_block) : nullptr;
}

TransposeHalves native_transpose_of_halves(CpuLevel level) {
  return level >= CpuLevel::avx2 ? transpose_halves : nullptr;
}

}  // namespace tessera::cpu
