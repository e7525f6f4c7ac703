// What concerns the whole process: hooks around compilations, the hardware.
#include <pybind11/functional.h>

#include "tessera/api/executor/compile_hooks.h"
#include "tessera/api/hardware.h"
#include "tessera/bindings/bindings.h"

namespace py = pybind11;

namespace tessera {

void bind_process(py::module_& module) {
  module.def("on_compile",
             [](const std::function<void()>& before, const std::function<void()>& after) {
               registerPreCompileHook(before);
               registerPostCompileHook(after);
             });
  module.def("ipuHardwareIsAvailable", &ipuHardwareIsAvailable, py::arg("num_ipus") = 1);
  module.def("ipuHardwareVersion", &ipuHardwareVersion);
}

}  // namespace tessera
