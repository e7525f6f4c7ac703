#include "tessera/api/executor/executor.h"

#include <c10/util/SmallVector.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "tessera/api/data_loader.h"
#include "tessera/backend/cpu/plan.h"
#include "tessera/bindings/bindings.h"
#include "tessera/bindings/option_values.h"
#include "tessera/ir/text.h"
#include "tessera/torch/result_tensor.h"

namespace py = pybind11;

namespace tessera {
namespace {

using PyNamed = std::vector<std::pair<std::string, at::Tensor>>;

std::vector<NamedTensor> named_tensors(const PyNamed& pairs) {
  std::vector<NamedTensor> named;
  for (const auto& [name, tensor] : pairs) named.push_back({name, tensor});
  return named;
}

// The last owner may let go while the GIL is released.
std::shared_ptr<py::function> held(const py::function& function) {
  return {new py::function(function), [](py::function* pointer) {
            const py::gil_scoped_acquire gil;
            delete pointer;
          }};
}

// Callbacks into the user's module. They run with the GIL; everything around them without.
std::function<std::vector<NamedTensor>()> list_of(const py::function& function) {
  return [list = held(function)] {
    const py::gil_scoped_acquire gil;
    return named_tensors((*list)().cast<PyNamed>());
  };
}

void forget_python_error() {
  const py::gil_scoped_acquire gil;
  PyErr_Clear();
}

// Executors in reference cycles keep their devices until they are found. Not PyGC_Collect(), which
// does nothing where a program turned the collector off.
void collect_garbage() {
  const py::gil_scoped_acquire gil;
  py::module_::import("gc").attr("collect")();
}

std::function<std::string()> text_of(const py::function& function) {
  return [text = held(function)] {
    const py::gil_scoped_acquire gil;
    return (*text)().cast<std::string>();
  };
}

std::function<int64_t()> number_of(const py::function& function) {
  return [number = held(function)] {
    const py::gil_scoped_acquire gil;
    return (*number)().cast<int64_t>();
  };
}

Forward forward_of(const py::function& function) {
  return [call = held(function)](const std::vector<at::Tensor>& inputs) {
    const py::gil_scoped_acquire gil;
    return (*call)(inputs).cast<std::vector<at::Tensor>>();
  };
}

ModelAccess access_to(const std::string& name, const py::function& parameters,
                      const py::function& buffers, const py::function& forward,
                      const py::function& output_structure, const py::function& ipus,
                      const Options& options) {
  return {.name = name,
          .parameters = list_of(parameters),
          .buffers = list_of(buffers),
          .forward = forward_of(forward),
          .front_end = {.locate =
                            [excludes = options.source_location_excludes()] {
                              return python_origin(excludes);
                            },
                        .forget_error = &forget_python_error,
                        .throw_wrapped = &throw_as_python_error,
                        .unwrapped = &carried_by_python_error},
          .poll = &raise_pending_signal,
          .output_structure = text_of(output_structure),
          .ipus = number_of(ipus),
          .reclaim = &collect_garbage};
}

// Whether dictionaries still hold the objects they held: `entries` are (dictionary, key, object),
// one after the other. So a module that got another parameter, buffer or sub-module is noticed in
// every call.
bool holds_the_same(const py::tuple& entries) {
  PyObject* const list = entries.ptr();
  for (Py_ssize_t i = 0; i + 2 < PyTuple_GET_SIZE(list); i += 3) {
    PyObject* const dict = PyTuple_GET_ITEM(list, i);
    PyObject* const held = PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(list, i + 1));
    if (held != PyTuple_GET_ITEM(list, i + 2)) return false;
  }
  return true;
}

// A call with nothing but tensors, as it is made thousands of times a second. None where it is not
// of that kind, the program is not compiled for it, or its module has other weights; and for
// tensors that must be asked before they are read.
py::object run_tensors(Executor& executor, const py::tuple& args, const py::tuple& weights) {
  if (is_capturing() || !holds_the_same(weights)) return py::none();
  c10::SmallVector<at::Tensor, 4> inputs;
  for (const auto& arg : args) {
    if (!THPVariable_CheckExact(arg.ptr())) return py::none();
    inputs.push_back(THPVariable_Unpack(arg.ptr()));
  }
  std::optional<std::vector<at::Tensor>> results;
  {
    const py::gil_scoped_release release;
    results = executor.run_again(inputs);
  }
  if (!results) return py::none();
  py::tuple returned(results->size());
  for (size_t i = 0; i < results->size(); ++i) {
    PyTuple_SET_ITEM(returned.ptr(), i, THPVariable_Wrap(std::move((*results)[i])));
  }
  return returned;
}

}  // namespace

void bind_executor(py::module_& module) {
  using Released = py::call_guard<py::gil_scoped_release>;
  py::class_<Executor> executor(module, "Executor");
  bind_inspection(executor);
  bind_saving(module, executor);
  executor
      .def(py::init([](bool training, const std::string& name, const py::function& parameters,
                       const py::function& buffers, const py::function& forward,
                       const py::function& output_structure, const py::function& ipus,
                       const Options& options, std::optional<Optimizer> optimizer) {
             options.freeze();
             const auto purpose = training ? Purpose::training : Purpose::inference;
             auto model =
                 access_to(name, parameters, buffers, forward, output_structure, ipus, options);
             const py::gil_scoped_release release;
             return std::make_unique<Executor>(purpose, std::move(model), options,
                                               std::move(optimizer));
           }),
           py::arg("training"), py::arg("name"), py::arg("parameters"), py::arg("buffers"),
           py::arg("forward"), py::arg("output_structure"), py::arg("ipus"), py::arg("options"),
           py::arg("optimizer") = py::none())
      .def(
          "run",
          [](Executor& self, const PyNamed& inputs) { return self.run(named_tensors(inputs)); },
          Released())
      .def("run_inside",
           [](Executor& self, const PyNamed& inputs, const py::function& forward) {
             Forward call = forward_of(forward);
             const py::gil_scoped_release release;
             return self.run_inside(named_tensors(inputs), std::move(call));
           })
      .def("run_tensors", &run_tensors)
      .def(
          "compile",
          [](Executor& self, const PyNamed& inputs) { self.compile(named_tensors(inputs)); },
          Released())
      .def("replicaGrouping",
           [](Executor& self, const std::string& parameter, const py::object& type,
              const py::object& shards, const py::object& mode) {
             const auto group_type = choice_from<CommGroupType>(type, "replicaGrouping");
             const int64_t size = integer_from(shards, "replicaGrouping");
             const auto retrieval = choice_from<VariableRetrievalMode>(mode, "replicaGrouping");
             const py::gil_scoped_release release;
             self.replicaGrouping(parameter, group_type, size, retrieval);
           })
      .def("setOptimizer", &Executor::setOptimizer, Released())
      .def("isCompiled", &Executor::isCompiled)
      .def("isAttachedToDevice", &Executor::isAttachedToDevice)
      .def("attachToDevice", &Executor::attachToDevice, Released())
      .def("detachFromDevice", &Executor::detachFromDevice, Released())
      .def("destroy", &Executor::destroy, Released())
      .def_static("check_callable", &Executor::check_callable)
      .def("micro_batches", [](const Executor& self) { return self.options().micro_batches(); })
      .def("restore_rng_state", &Executor::restore_rng_state, Released())
      .def("weights_were_replaced", &Executor::weights_were_replaced)
      .def("host_is_outdated", &Executor::host_is_outdated, Released())
      .def("copyWeightsToHost", &Executor::copyWeightsToHost, Released())
      .def("copyWeightsToDevice", &Executor::copyWeightsToDevice, Released())
      .def("copyWeightsToHostIfNeeded", &Executor::copyWeightsToHostIfNeeded, Released())
      .def("hostCalls",
           [](const Executor& self) {
             std::vector<HostCall> made;
             {
               const py::gil_scoped_release release;  // a running call may need it to end
               made = self.hostCalls();
             }
             py::list calls;
             for (const HostCall& call : made) {
               py::dict entry;
               entry["operator"] = call.overload;
               entry["nodes"] = call.nodes;
               entry["runs"] = call.runs;
               entry["seconds"] = call.seconds;
               calls.append(std::move(entry));
             }
             return calls;
           })
      .def_property_readonly("options", &Executor::options,
                             py::return_value_policy::reference_internal)
      .def("signature_text",
           [](const Executor& self) { return print(self.executable().signature()); })
      .def("graph_text", [](const Executor& self) { return print(self.executable().graph()); })
      .def("plan_text", [](const Executor& self) { return cpu::print(self.executable().plan()); });

  module.def("holds_the_same", &holds_the_same);
  module.def("is_result", &is_result,
             "Whether a tensor, or what it is a view of, came from a call.");
}

}  // namespace tessera
