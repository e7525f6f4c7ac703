// Files of executors: what save(), loadExecutable() and poptorch.load() call.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "tessera/api/executor/executor.h"
#include "tessera/api/executor/saved_model.h"
#include "tessera/bindings/bindings.h"

namespace py = pybind11;

namespace tessera {
namespace {

using Released = py::call_guard<py::gil_scoped_release>;

py::object part_of(const SavedModel& saved, const std::string& name) {
  if (!saved.file().has_part(name)) return py::none();
  const auto bytes = saved.part(name);
  return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::vector<at::Tensor> example_inputs(const SavedModel& saved) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& input : saved.example_inputs()) tensors.push_back(input.tensor);
  return tensors;
}

std::vector<std::string> input_names(const SavedModel& saved) {
  std::vector<std::string> names;
  for (const StepInput& input : saved.signature().inputs) names.push_back(input.name);
  return names;
}

}  // namespace

void bind_saving(py::module_& module, py::class_<Executor>& executor) {
  py::class_<SavedModel, std::shared_ptr<SavedModel>>(module, "SavedModel")
      .def(py::init<const std::string&>(), py::arg("path"), Released())
      .def_property_readonly("path", &SavedModel::path)
      .def_property_readonly("version", &SavedModel::version)
      .def("metadata", [](const SavedModel& self,
                          const std::string& name) { return self.file().metadata(name); })
      .def("part", &part_of)
      .def("example_inputs", &example_inputs)
      .def("input_names", &input_names);
  executor
      .def(
          "save",
          [](Executor& self, const std::string& path, bool rng_state,
             std::map<std::string, std::string> metadata,
             const std::map<std::string, py::bytes>& parts) {
            SaveRequest request{.rng_state = rng_state, .metadata = std::move(metadata)};
            for (const auto& [name, bytes] : parts) request.parts[name] = std::string(bytes);
            const py::gil_scoped_release release;
            self.save(path, request);
          },
          py::arg("path"), py::arg("rng_state"), py::arg("metadata"), py::arg("parts"))
      .def(
          "loadExecutable",
          [](Executor& self, const std::shared_ptr<SavedModel>& saved, bool optimizer_state) {
            self.loadExecutable(saved, optimizer_state);
          },
          py::arg("saved"), py::arg("optimizer_state"), Released())
      .def(
          "load_when_compiled",
          [](Executor& self, const std::shared_ptr<SavedModel>& saved, bool optimizer_state) {
            self.load_when_compiled(saved, optimizer_state);
          },
          py::arg("saved"), py::arg("optimizer_state"), Released());
  module.def("drop_offline_target", &drop_offline_target);
}

}  // namespace tessera
