#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "tessera/api/executor/executor.h"
#include "tessera/api/graph_export.h"
#include "tessera/bindings/bindings.h"

namespace py = pybind11;

namespace tessera {
namespace {

using PyLatency = std::tuple<double, double, double>;

// A method that gives a latency, as one that gives a tuple.
template <Latency (Executor::*method)() const>
PyLatency as_tuple(const Executor& executor) {
  const Latency latency = (executor.*method)();
  return {latency.min, latency.max, latency.avg};
}

std::map<std::string, PerfCounters::Times> as_map(const PerfCounters& counters) {
  return {{"input", counters.input},
          {"input_complete", counters.input_complete},
          {"output", counters.output},
          {"output_complete", counters.output_complete}};
}

}  // namespace

void bind_inspection(py::class_<Executor>& executor) {
  // Everything waits for a call that is running on another thread, which may need the GIL.
  using Released = py::call_guard<py::gil_scoped_release>;
  executor.def("copyNamedBuffersToDevice", &Executor::copyNamedBuffersToDevice, Released())
      .def_property("rng_state", py::cpp_function(&Executor::rng_state, Released()),
                    py::cpp_function(&Executor::set_rng_state, Released()))
      .def("getTensorNames", &Executor::getTensorNames, Released())
      .def("getAnchoredTensor", &Executor::getAnchoredTensor, py::arg("short_name"), Released())
      .def(
          "getPerfCounters", [](const Executor& self) { return as_map(self.getPerfCounters()); },
          Released())
      .def("getLatency", &as_tuple<&Executor::getLatency>, Released())
      .def("getHostIpuLatency", &as_tuple<&Executor::getHostIpuLatency>, Released())
      .def("getComputeLatency", &as_tuple<&Executor::getComputeLatency>, Released())
      .def("getIpuHostLatency", &as_tuple<&Executor::getIpuHostLatency>, Released())
      .def("cycleCount", &Executor::cycleCount, Released())
      .def(
          "compilationTime", [](const Executor& self) { return self.compilationTime().count(); },
          Released())
      .def(
          "graph_json", [](const Executor& self) { return graph_json(self.executable().graph()); },
          Released());
}

}  // namespace tessera
