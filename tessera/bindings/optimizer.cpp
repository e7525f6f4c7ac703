#include "tessera/api/optimizer/optimizer.h"

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

#include "tessera/bindings/bindings.h"

namespace py = pybind11;

namespace tessera {
namespace {

// The parameters of a group, its numbers, and the names of what else it holds.
using PyGroup = std::tuple<std::vector<at::Tensor>, OptimizerValues, std::vector<std::string>>;

py::dict to_dict(const std::vector<NamedTensor>& named) {
  py::dict tensors;
  for (const auto& [name, tensor] : named) {
    tensors[py::str(name)] = py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
  }
  return tensors;
}

std::vector<NamedTensor> from_dict(const py::dict& tensors) {
  std::vector<NamedTensor> named;
  for (const auto& [name, tensor] : tensors) {
    named.push_back({name.cast<std::string>(), tensor.cast<at::Tensor>()});
  }
  return named;
}

// (state, numbers, whether they came from the device), or nothing.
py::object read(OptimizerState& self) {
  bool fetched = false;
  std::optional<OptimizerStateDict> values;
  {
    const py::gil_scoped_release release;
    values = self.read(&fetched);
  }
  if (!values) return py::none();
  return py::make_tuple(to_dict(values->ipu_state), to_dict(values->ipu_param), fetched);
}

// (snapshot of the state, numbers, whether the state is on the device), or nothing.
py::object glance(OptimizerState& self) {
  std::optional<OptimizerState::Glance> seen;
  {
    const py::gil_scoped_release release;
    seen = self.glance();
  }
  if (!seen) return py::none();
  return py::make_tuple(seen->state, to_dict(seen->ipu_param), seen->on_device);
}

py::dict state_of(OptimizerSnapshot& self) {
  std::vector<NamedTensor> values;
  {
    const py::gil_scoped_release release;
    values = self.ipu_state();
  }
  return to_dict(values);
}

}  // namespace

void bind_optimizer(py::module_& module) {
  using Names = std::vector<std::string>;
  py::class_<VariableAttributes>(
      module, "VariableAttributes",
      "Which attributes of an optimiser may change after the model was compiled.")
      .def(py::init([](const std::string& kind, const Names& given) {
             VariableAttributes attributes({}, optimizer_kind(kind).attributes());
             const auto& allowed = attributes.allowed();
             for (const std::string& name : given) {
               const bool known = std::find(allowed.begin(), allowed.end(), name) != allowed.end();
               if (known) attributes.markAsVariable(name);
             }
             return attributes;
           }),
           py::arg("kind"), py::arg("given"))
      .def("isConstant", &VariableAttributes::isConstant, py::arg("attr"),
           "True where the attribute cannot change after the model was compiled.")
      .def("markAsConstant", &VariableAttributes::markAsConstant, py::arg("attr"),
           "From now on the attribute cannot change after the model was compiled.")
      .def("markAsVariable", &VariableAttributes::markAsVariable, py::arg("attr"),
           "From now on the attribute may change after the model was compiled.")
      .def_property("_variable_attributes", &VariableAttributes::variable,
                    [](VariableAttributes& self, const Names& variable) {
                      self = VariableAttributes(variable, self.allowed());
                    })
      .def_property_readonly("_allowed_attributes", &VariableAttributes::allowed)
      .def(py::pickle(
          [](const VariableAttributes& self) {
            return py::make_tuple(self.variable(), self.allowed());
          },
          [](const py::tuple& state) {
            return VariableAttributes(state[0].cast<Names>(), state[1].cast<Names>());
          }));

  py::class_<OptimizerSnapshot, std::shared_ptr<OptimizerSnapshot>>(module, "OptimizerSnapshot")
      .def("ipu_state", &state_of);

  py::class_<OptimizerState, std::shared_ptr<OptimizerState>>(module, "OptimizerState")
      .def(py::init<>())
      .def("read", &read)
      .def("glance", &glance)
      .def(
          "load",
          [](OptimizerState& self, const py::dict& state, const py::dict& numbers,
             std::vector<OptimizerValues> groups) {
            self.load({from_dict(state), from_dict(numbers), std::move(groups)});
          },
          py::arg("state"), py::arg("numbers"), py::arg("groups"));

  py::class_<Optimizer>(module, "Optimizer")
      .def(py::init([](const std::string& kind, std::vector<PyGroup> groups, OptimizerValues values,
                       OptimizerValues defaults, Names attributes,
                       const std::optional<VariableAttributes>& variable,
                       std::shared_ptr<OptimizerState> state) {
             std::vector<OptimizerGroup> converted;
             for (auto& [parameters, numbers, others] : groups) {
               converted.push_back({std::move(parameters), std::move(numbers), std::move(others)});
             }
             return Optimizer(kind, std::move(converted),
                              {.values = std::move(values),
                               .defaults = std::move(defaults),
                               .attributes = std::move(attributes),
                               .variable = variable,
                               .state = std::move(state)});
           }),
           py::arg("kind"), py::arg("groups"), py::arg("values"), py::arg("defaults"),
           py::arg("attributes"), py::arg("variable"), py::arg("state"));
}

}  // namespace tessera
