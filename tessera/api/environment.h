// What the environment says about how a program is compiled, and what compiling one means for the
// process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {

class Options;

// The kind of IPU that is modelled.
struct IpuModel {
  int64_t version = 2;  // 1, 2 or 21
  int64_t tiles_per_ipu = 1472;
};

// The model that a program is compiled for; nothing where it is compiled for the hardware.
// Options.useIpuModel wins over POPTORCH_IPU_MODEL, and that over POPTORCH_SMALL_IPU_MODEL;
// POPTORCH_IPU_MODEL_VERSION must be ipu1, ipu2 or ipu21.
std::optional<IpuModel> ipu_model(const Options& options);

// The whole number that a variable holds; `otherwise` where it is not set. Error where it is none.
int64_t number_in_environment(const std::string& variable, int64_t otherwise);

// TESSERA_CHECK=1: every call of a program runs beside its operator's reference kernel. Error where
// the variable is neither 0 nor 1.
bool checks_calls();

// To be called first when a program is compiled. From then on messages and long errors of the
// process follow these options (maxRepeatLogs, logDir). Fails where the environment asks for what
// cannot be: an IPU model that does not exist, POPLAR_ENGINE_OPTIONS that are no JSON object.
void prepare_process(const Options& options);

}  // namespace tessera
