// What x86/ gives to this folder, on machines of another kind.
#include "tessera/kernels/panels.h"

tessera::kernels::PanelKernel tessera::kernels::avx2_panel_kernel() { return nullptr; }
tessera::kernels::HalfPanelKernel tessera::kernels::avx2_half_panel_kernel() { return nullptr; }
