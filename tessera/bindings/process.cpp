// What concerns the whole process: hooks around compilations, the hardware, its launcher.
#include <pybind11/functional.h>

#include <functional>
#include <utility>

#include "tessera/api/executor/compile_hooks.h"
#include "tessera/api/hardware.h"
#include "tessera/api/popdist.h"
#include "tessera/bindings/bindings.h"

namespace py = pybind11;

namespace tessera {
namespace {

// An exception of the user's that passes through autograd stays Python's current one while it
// travels through C++: a function called meanwhile would take it for its own.
std::function<void()> undisturbed(std::function<void()> function) {
  return [function = std::move(function)] {
    const py::gil_scoped_acquire gil;
    const py::error_scope travelling;
    function();
  };
}

void bind_popdist(py::module_& module) {
  module.def("popdist_isPopdistEnvSet", &popdist::isPopdistEnvSet);
  module.def("popdist_getInstanceIndex", &popdist::getInstanceIndex);
  module.def("popdist_getNumInstances", &popdist::getNumInstances);
  module.def("popdist_getLocalInstanceIndex", &popdist::getLocalInstanceIndex);
  module.def("popdist_getNumTotalReplicas", &popdist::getNumTotalReplicas);
  module.def("popdist_getNumLocalReplicas", &popdist::getNumLocalReplicas);
  module.def("popdist_getReplicaIndexOffset", &popdist::getReplicaIndexOffset);
  module.def("popdist_getNumIpusPerReplica", &popdist::getNumIpusPerReplica);
  module.def("popdist_checkNumIpusPerReplica", &popdist::checkNumIpusPerReplica);
  module.def("popdist_getDeviceId", &popdist::getDeviceId);
  module.def("popdist_options", &popdist::options);
}

}  // namespace

void bind_process(py::module_& module) {
  module.def("on_compile",
             [](const std::function<void()>& before, const std::function<void()>& after) {
               registerPreCompileHook(undisturbed(before));
               registerPostCompileHook(undisturbed(after));
             });
  module.def("ipuHardwareIsAvailable", &ipuHardwareIsAvailable, py::arg("num_ipus") = 1);
  module.def("ipuHardwareVersion", &ipuHardwareVersion);
  bind_popdist(module);
}

}  // namespace tessera
