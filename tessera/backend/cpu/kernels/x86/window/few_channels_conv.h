// Convolutions of few channels, over images in batch_layout or plain ones.
#pragma once

#include <vector>

#include "tessera/backend/cpu/kernels/table.h"

namespace tessera::cpu {

std::vector<KernelEntry> few_channels_conv_entries();

}  // namespace tessera::cpu
