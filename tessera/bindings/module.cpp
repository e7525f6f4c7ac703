// The Python module poptorch.poptorch_core: what the packages in python/ call.
#include "tessera/bindings/bindings.h"

PYBIND11_MODULE(poptorch_core, module) {
  module.doc() = "Tessera's core: options, executors, errors. Use the package poptorch instead.";
  tessera::bind_errors(module);
  tessera::bind_logging(module);
  tessera::bind_options(module);
  tessera::bind_optimizer(module);
  tessera::bind_executor(module);
  tessera::bind_batches(module);
  tessera::bind_capture(module);
  tessera::bind_process(module);
  tessera::bind_instances(module);
}
