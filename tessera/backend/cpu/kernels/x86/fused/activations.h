// Instructions of the non-linearities of neural networks and their gradients.
#pragma once

#include "tessera/backend/cpu/kernels/x86/fused/step.h"

namespace tessera::cpu::fused {

Ymm relu(Step& s);
Ymm leaky_relu(Step& s);
Ymm leaky_relu_backward(Step& s);
Ymm threshold(Step& s);
Ymm threshold_backward(Step& s);
Ymm hardtanh(Step& s);
Ymm hardtanh_backward(Step& s);
Ymm hardsigmoid(Step& s);
Ymm hardswish(Step& s);
Ymm hardsigmoid_backward(Step& s);
Ymm hardswish_backward(Step& s);
Ymm silu(Step& s);
Ymm silu_backward(Step& s);
Ymm sigmoid_backward(Step& s);
Ymm tanh_backward(Step& s);
Ymm gelu(Step& s);
Ymm gelu_backward(Step& s);
Ymm elu(Step& s);
Ymm elu_backward(Step& s);
Ymm softplus(Step& s);
Ymm softplus_backward(Step& s);

}  // namespace tessera::cpu::fused
