// What concerns the whole process: hooks around compilations, the hardware.
#include <pybind11/functional.h>

#include <functional>
#include <utility>

#include "tessera/api/executor/compile_hooks.h"
#include "tessera/api/hardware.h"
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

}  // namespace

void bind_process(py::module_& module) {
  module.def("on_compile",
             [](const std::function<void()>& before, const std::function<void()>& after) {
               registerPreCompileHook(undisturbed(before));
               registerPostCompileHook(undisturbed(after));
             });
  module.def("ipuHardwareIsAvailable", &ipuHardwareIsAvailable, py::arg("num_ipus") = 1);
  module.def("ipuHardwareVersion", &ipuHardwareVersion);
}

}  // namespace tessera
