// How an executor reaches the user's module, whichever language it is written in.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/torch/capture.h"

namespace tessera {

enum class Purpose { training, inference };

struct ModelAccess {
  std::string name = {};  // of the module's class
  // As they are now; one with several names is listed under each of them.
  std::function<std::vector<NamedTensor>()> parameters;
  std::function<std::vector<NamedTensor>()> buffers;
  Forward forward;
  FrontEnd front_end = {};
  std::function<std::vector<ModuleClass>()> modules = {};  // of a model written in C++
  std::function<void()> poll = {};  // throws where the user wants a running call to stop
  // How forward nested what it returned when it last ran: see StepSignature::structure.
  std::function<std::string()> output_structure = {};
  // Over how many IPUs forward was spread when it last ran; one where nobody says.
  std::function<int64_t()> ipus = {};
  // Frees models that nobody can reach any more, with their devices.
  std::function<void()> reclaim = {};

  // Parameters and buffers, each under all of its names.
  std::vector<NamedTensor> tensors() const {
    std::vector<NamedTensor> tensors = parameters();
    for (NamedTensor& buffer : buffers()) tensors.push_back(std::move(buffer));
    return tensors;
  }
};

}  // namespace tessera
