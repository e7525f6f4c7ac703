#include "tessera/api/options.h"

#include <pybind11/stl.h>

#include "tessera/api/data_loader.h"
#include "tessera/base/error.h"
#include "tessera/bindings/bindings.h"

namespace py = pybind11;

namespace tessera {
namespace {

constexpr auto same_object = py::return_value_policy::reference_internal;

py::dict state_of(const Options& options) {
  py::dict state;
  state["device_iterations"] = options.device_iterations();
  state["replication_factor"] = options.replication_factor();
  state["random_seed"] = options.random_seed();
  state["use_ipu_model"] = options.use_ipu_model();
  state["output_mode"] =
      options.output_mode() ? py::cast(static_cast<int>(*options.output_mode())) : py::none();
  state["output_return_period"] = options.output_return_period();
  state["show_compilation_progress_bar"] = options.show_compilation_progress_bar();
  state["precise"] = options.precise_results();
  state["autotune"] = options.autotuned();
  state["gradient_accumulation"] = options.Training().gradient_accumulation();
  state["frozen"] = options.frozen();
  return state;
}

// Pickled options go to the workers of a data loader: seeding PyTorch there again is not wanted.
Options options_from(const py::dict& state) {
  Options options;
  options.deviceIterations(state["device_iterations"].cast<int64_t>());
  options.replicationFactor(state["replication_factor"].cast<int64_t>());
  options.Training().gradientAccumulation(state["gradient_accumulation"].cast<int64_t>());
  if (!state["random_seed"].is_none()) {
    options.restoreRandomSeed(state["random_seed"].cast<int64_t>());
  }
  if (!state["use_ipu_model"].is_none()) options.useIpuModel(state["use_ipu_model"].cast<bool>());
  if (!state["output_mode"].is_none()) {
    options.outputMode(static_cast<OutputMode>(state["output_mode"].cast<int>()),
                       state["output_return_period"].cast<int64_t>());
  }
  options.showCompilationProgressBar(state["show_compilation_progress_bar"].cast<bool>());
  if (!state["autotune"].is_none()) options.autotune(state["autotune"].cast<bool>());
  if (!state["precise"].is_none()) options.precise(state["precise"].cast<bool>());
  if (state["frozen"].cast<bool>()) options.freeze();
  return options;
}

}  // namespace

void bind_options(py::module_& module) {
  py::class_<TrainingOptions>(module, "_TrainingOptions", "Options that only training has.")
      .def("gradientAccumulation", &TrainingOptions::gradientAccumulation, same_object,
           py::arg("gradient_accumulation"),
           "How many micro-batches are accumulated for one weight update (1 by default).")
      .def_property_readonly("gradient_accumulation", &TrainingOptions::gradient_accumulation);

  py::class_<Options>(module, "Options",
                      "How a model is run. Setters can be chained:\n\n"
                      "    opts = poptorch.Options().deviceIterations(20).randomSeed(123)\n\n"
                      "Options given to a model or a data loader are frozen; change a clone().")
      .def(py::init<>())
      .def("deviceIterations", &Options::deviceIterations, same_object,
           py::arg("device_iterations"),
           "Weight updates (training) or forward passes (inference) per call (1 by default).")
      .def("replicationFactor", &Options::replicationFactor, same_object,
           py::arg("replication_factor"), "Data-parallel copies of the model (1 by default).")
      .def("randomSeed", &Options::randomSeed, same_object, py::arg("random_seed"),
           "Fixes the program's random numbers; also calls torch.manual_seed.")
      .def("useIpuModel", &Options::useIpuModel, same_object, py::arg("use_model"),
           "Accepted; the program runs on the CPU either way.")
      .def(
          "outputMode",
          [](Options& self, int mode, std::optional<int64_t> period) -> Options& {
            return mode == 4 ? self.defaultOutputMode()
                             : self.outputMode(static_cast<OutputMode>(mode), period);
          },
          same_object, py::arg("output_mode"), py::arg("output_return_period") = py::none(),
          "Which micro-batches' outputs a call returns: a poptorch.OutputMode.")
      .def("showCompilationProgressBar", &Options::showCompilationProgressBar, same_object,
           py::arg("show") = true, "Whether compiling shows a progress bar (True by default).")
      .def("precise", &Options::precise, same_object, py::arg("precise") = true,
           "Leave out algorithms that round more than the plain one does. Without it, large\n"
           "convolutions may use Winograd's with 4x4 tiles: within 2e-5 of the largest value.")
      .def("autotune", &Options::autotune, same_object, py::arg("autotune") = true,
           "Let compiling time kernels where several could do the same work (off by default).\n"
           "Results may then differ in their last bits from one compilation to the next.")
      .def_property_readonly(
          "Training", [](Options& self) -> TrainingOptions& { return self.Training(); },
          same_object, "Options that only training has.")
      .def_property_readonly("device_iterations", &Options::device_iterations)
      .def_property_readonly("replication_factor", &Options::replication_factor)
      .def_property_readonly("random_seed",
                             [](const Options& self) {
                               check(self.random_seed().has_value(), ErrorKind::attribute,
                                     "random_seed is not set; check exists(\"random_seed\")");
                               return *self.random_seed();
                             })
      .def("exists",
           [](const Options& self, const std::string& name) {
             const py::dict state = state_of(self);
             return state.contains(name) && !state[name.c_str()].is_none();
           })
      .def("clone", &Options::clone, "An unfrozen copy.")
      .def("__copy__", &Options::clone)
      .def("__deepcopy__", [](const Options& self, const py::dict&) { return self.clone(); })
      .def("_freeze", &Options::freeze)
      .def_property_readonly("_frozen", &Options::frozen)
      .def("__repr__",
           [](const Options& self) {
             std::string text;
             for (const auto& [name, value] : state_of(self)) {
               if (!text.empty()) text += ", ";
               text += fmt::format("{}={}", py::str(name).cast<std::string>(),
                                   py::repr(value).cast<std::string>());
             }
             return "Options(" + text + ")";
           })
      .def(py::pickle(&state_of, &options_from));

  module.def("combined_batch_size", &combined_batch_size);
  module.def("batch_count", &batch_count);
}

}  // namespace tessera
