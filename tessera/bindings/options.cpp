// The core of poptorch.Options: values by name, and the setters that do more than set one. What
// Python users see, with its documentation, is python/poptorch/options.py.
#include "tessera/api/options/options.h"

#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>

#include "tessera/api/data_loader.h"
#include "tessera/api/options/option_warnings.h"
#include "tessera/api/options/pipeline_check.h"
#include "tessera/api/spoken.h"
#include "tessera/base/error.h"
#include "tessera/bindings/bindings.h"
#include "tessera/bindings/option_values.h"

namespace py = pybind11;

namespace tessera {
namespace {

constexpr auto same_object = py::return_value_policy::reference_internal;

py::dict values_of(const OptionGroup& group) {
  py::dict values;
  for (const auto& [name, value] : group.values()) values[py::str(name)] = value_to(value);
  return values;
}

void restore_values(OptionGroup& group, const py::dict& values) {
  for (const auto& [name, value] : values) {
    group.restore(name.cast<std::string>(), value_from(value));
  }
}

// The same list for pickling and for going back.
template <typename Function>
void for_each_group(Options& options, Function function) {
  function("Options", static_cast<OptionGroup&>(options));
  function("Training", static_cast<OptionGroup&>(options.Training()));
  function("Precision", static_cast<OptionGroup&>(options.Precision()));
  function("TensorLocations", static_cast<OptionGroup&>(options.TensorLocations()));
  function("Distributed", static_cast<OptionGroup&>(options.Distributed()));
  function("Jit", static_cast<OptionGroup&>(options.Jit()));
}

py::dict options_state(Options& options) {
  py::dict state;
  for_each_group(
      options, [&](const char* name, const OptionGroup& group) { state[name] = values_of(group); });
  state["Popart"] = dict_to(options.Popart().options());
  state["frozen"] = options.frozen();
  return state;
}

// Pickled options go to the workers of a data loader: seeding PyTorch there again is not wanted.
void restore(Options& options, const py::dict& state) {
  for_each_group(options, [&](const char* name, OptionGroup& group) {
    restore_values(group, state[name].cast<py::dict>());
  });
  options.Popart().restore(dict_from(state["Popart"].cast<py::dict>()));
  if (state["frozen"].cast<bool>()) options.freeze();
}

std::map<std::string, double> proportions_from(const py::object& object) {
  check(py::isinstance<py::dict>(object), ErrorKind::assertion,
        "setAvailableMemoryProportion takes a dict, not {}", spoken_type(value_from(object)));
  std::map<std::string, double> proportions;
  for (const auto& [key, item] : object.cast<py::dict>()) {
    const std::string name = to_string(value_from(key));
    const OptionValue value = value_from(item);
    check(value.is<double>() || value.is<int64_t>(), ErrorKind::assertion,
          "setAvailableMemoryProportion: the proportion for {} must be a float, not {}", name,
          spoken_type(value));
    proportions[name] =
        value.is<double>() ? value.as<double>() : static_cast<double>(value.as<int64_t>());
  }
  return proportions;
}

std::optional<std::string> folder_from(const py::object& object, const char* setter) {
  if (object.is_none()) return std::nullopt;
  if (!py::hasattr(object, "__fspath__")) return text_from(object, setter);
  return text_from(object.attr("__fspath__")(), setter);
}

void set_output_mode(Options& options, const py::object& mode, const py::object& period) {
  const auto chosen = choice_from<OutputMode>(mode, "outputMode");
  std::optional<int64_t> number;
  if (!period.is_none()) number = integer_from(period, "output_return_period of outputMode");
  // Python's enumeration has one member more: the default.
  if (chosen > OutputMode::sum) {
    options.resetOutputMode();
  } else {
    options.outputMode(chosen, number);
  }
}

void anchor_tensor(Options& options, const py::object& short_name, const py::object& long_name,
                   const py::object& mode, const py::object& period) {
  std::optional<OutputMode> chosen;
  if (!mode.is_none()) chosen = choice_from<OutputMode>(mode, "anchorTensor");
  if (chosen > OutputMode::sum) chosen.reset();
  const int64_t number =
      period.is_none() ? 1 : integer_from(period, "output_return_period of anchorTensor");
  options.anchorTensor(text_from(short_name, "short_name of anchorTensor"),
                       text_from(long_name, "long_name of anchorTensor"), chosen, number);
}

std::map<std::string, bool> patterns_from(const py::dict& dict) {
  std::map<std::string, bool> patterns;
  for (const auto& [name, enabled] : dict) {
    patterns[text_from(name, "a name in setPatterns")] = flag_from(enabled, "setPatterns");
  }
  return patterns;
}

void set_partials_type(PrecisionOptions& options, const py::object& type) {
  check(THPDtype_Check(type.ptr()), ErrorKind::value,
        "setPartialsType takes torch.float or torch.half, not {}", spoken_type(value_from(type)));
  options.setPartialsType(reinterpret_cast<THPDtype*>(type.ptr())->scalar_type);
}

// Everything toDict() gives is either one of our options or one of PopART's.
void validate_options(const py::dict& all) {
  Options options;
  for (const auto& [key, value] : all) {
    const auto name = key.cast<std::string>();
    bool ours = name == "execution_mode" || name == "compilation_progress_bar_fn";
    for_each_group(options, [&](const char*, const OptionGroup& group) {
      for (const OptionField& field : group.fields()) ours = ours || field.name == name;
    });
    if (!ours) check_popart_option(name, value_from(value));
  }
}

constexpr const char* option_name = "the name of an option";

// A class of options that can be read and set by name.
template <typename Group>
py::class_<Group> group_class(py::module_& module, const char* name, const char* doc) {
  return py::class_<Group>(module, name, doc)
      .def("get",
           [](const Group& self, const py::object& option) {
             return value_to(self.get(text_from(option, option_name)));
           })
      .def("set", [](Group& self, const std::string& option,
                     const py::object& value) { self.set(option, value_from(value)); })
      .def("exists",
           [](const Group& self, const py::object& option) {
             return self.exists(text_from(option, option_name));
           })
      .def("clear", [](Group& self,
                       const py::object& option) { self.clear(text_from(option, option_name)); })
      .def("values", [](const Group& self) { return values_of(self); })
      .def("restore", [](Group& self, const py::dict& values) { restore_values(self, values); })
      .def("names",
           [](const Group& self) {
             std::vector<std::string> names;
             for (const OptionField& field : self.fields()) names.emplace_back(field.name);
             return names;
           })
      .def("check_changeable", [](const Group& self) { self.check_changeable(); })
      .def_property_readonly("frozen", [](const Group& self) { return self.frozen(); });
}

// Python's users see warnings of setters as those of other Python code.
void warn_in_python(const std::string& message) {
  const py::gil_scoped_acquire gil;
  py::module_::import("poptorch._logging").attr("logger").attr("warning")("%s", message);
}

void bind_groups(py::module_& module) {
  group_class<TrainingOptions>(module, "TrainingOptions", "Options that only training has.")
      .def("setAutomaticLossScaling",
           [](TrainingOptions& self, const py::object& enabled) {
             self.setAutomaticLossScaling(flag_from(enabled, "setAutomaticLossScaling"));
           })
      .def("setConvolutionDithering", [](TrainingOptions& self, const py::object& enabled) {
        self.setConvolutionDithering(flag_from(enabled, "setConvolutionDithering"));
      });

  group_class<PrecisionOptions>(module, "PrecisionOptions", "Options about numbers.")
      .def(
          "enableFloatingPointExceptions",
          [](PrecisionOptions& self, const py::object& enabled) {
            self.enableFloatingPointExceptions(flag_from(enabled, "enableFloatingPointExceptions"));
          })
      .def("enableStochasticRounding",
           [](PrecisionOptions& self, const py::object& enabled) {
             self.enableStochasticRounding(flag_from(enabled, "enableStochasticRounding"));
           })
      .def("setPartialsType", &set_partials_type)
      .def("halfFloatCasting", [](PrecisionOptions& self) { self.halfFloatCasting(); })
      .def("runningStatisticsAlwaysFloat", [](PrecisionOptions& self, const py::object& value) {
        check(py::isinstance<py::bool_>(value), ErrorKind::value,
              "runningStatisticsAlwaysFloat takes a bool, not {}", spoken_type(value_from(value)));
        self.runningStatisticsAlwaysFloat(value.cast<bool>());
      });

  group_class<TensorLocationSettings>(module, "TensorLocationSettings",
                                      "Where a kind of tensor is kept.")
      .def(py::init<>());

  group_class<TensorLocationOptions>(module, "TensorLocationOptions", "Where tensors are kept.");

  group_class<DistributedOptions>(module, "DistributedOptions",
                                  "Which process of how many this one is.")
      .def("configureProcessId",
           [](DistributedOptions& self, const py::object& id, const py::object& count) {
             self.configureProcessId(integer_from(id, "process_id of configureProcessId"),
                                     integer_from(count, "num_processes of configureProcessId"));
           })
      .def("setEnvVarNames",
           [](DistributedOptions& self, const py::object& count, const py::object& id) {
             self.setEnvVarNames(text_from(count, "var_num_processes of setEnvVarNames"),
                                 text_from(id, "var_process_id of setEnvVarNames"));
           })
      .def("disable", [](DistributedOptions& self) { self.disable(); });

  group_class<JitOptions>(module, "JitOptions", "Options of what is gone.")
      .def("traceModel", [](JitOptions& self, const py::object& trace) {
        self.traceModel(flag_from(trace, "traceModel"));
      });

  py::class_<PopartOptions>(module, "PopartOptions")
      .def("set",
           [](PopartOptions& self, const py::object& key, const py::object& value) {
             self.set(text_from(key, "the key of _Popart.set"), value_from(value));
           })
      .def("setPatterns",
           [](PopartOptions& self, const py::dict& patterns, const py::object& level) {
             self.setPatterns(patterns_from(patterns), integer_from(level, "level of setPatterns"));
           })
      .def_property_readonly("options",
                             [](const PopartOptions& self) { return dict_to(self.options()); })
      .def("restore",
           [](PopartOptions& self, const py::dict& options) { self.restore(dict_from(options)); })
      .def("check_changeable", &PopartOptions::check_changeable)
      .def_property_readonly("frozen", &PopartOptions::frozen)
      .def("check", &PopartOptions::check);
}

}  // namespace

void bind_options(py::module_& module) {
  show_option_warnings(&warn_in_python);
  py::class_<OptionUnknown>(module, "UnknownValue", "A value that no option can have.")
      .def("__repr__", [](const OptionUnknown& self) { return "<" + self.type + ">"; })
      .def(py::pickle(
          [](const OptionUnknown& self) { return py::make_tuple(self.type); },
          [](const py::tuple& state) { return OptionUnknown{state[0].cast<std::string>()}; }));
  bind_groups(module);
  group_class<Options>(module, "Options", "The core of poptorch.Options.")
      .def(py::init<>())
      .def("inputReplicaGrouping",
           [](Options& self, const py::object& size, const py::object& type) {
             self.inputReplicaGrouping(integer_from(size, "inputReplicaGrouping"),
                                       choice_from<CommGroupType>(type, "inputReplicaGrouping"));
           })
      .def("outputMode", &set_output_mode)
      .def("defaultOutputMode", &Options::defaultOutputMode)
      .def("setAvailableMemoryProportion",
           [](Options& self, const py::object& proportions) {
             self.setAvailableMemoryProportion(proportions_from(proportions));
           })
      .def("useOfflineIpuTarget",
           [](Options& self, const py::object& version) {
             self.useOfflineIpuTarget(integer_from(version, "useOfflineIpuTarget"));
           })
      .def("randomSeed",
           [](Options& self, const py::object& seed) {
             self.randomSeed(integer_from(seed, "randomSeed"));
           })
      .def("enableExecutableCaching",
           [](Options& self, const py::object& path) {
             self.enableExecutableCaching(folder_from(path, "enableExecutableCaching"));
           })
      .def("enableSyntheticData",
           [](Options& self, bool enabled) { self.enableSyntheticData(enabled); })
      .def("enableStableNorm",
           [](Options& self, const py::object& enabled) {
             self.enableStableNorm(flag_from(enabled, "enableStableNorm"));
           })
      .def("logCycleCount",
           [](Options& self, const py::object& log) {
             self.logCycleCount(flag_from(log, "logCycleCount"));
           })
      .def("enableProfiling",
           [](Options& self, const py::object& folder) {
             self.enableProfiling(folder_from(folder, "enableProfiling"));
           })
      .def("anchorTensor", &anchor_tensor)
      .def("appendToLocationExcludes",
           [](Options& self, const py::list& excludes) {
             std::vector<std::string> texts;
             for (const auto& exclude : excludes) {
               texts.push_back(text_from(exclude, "appendToLocationExcludes"));
             }
             self.appendToLocationExcludes(texts);
           })
      .def("from_json",
           [](Options& self, const py::object& json) {
             self.from_json(text_from(json, "from_json"));
           })
      .def("check_for_compile", &Options::check_for_compile)
      .def("clone", &Options::clone)
      .def("freeze", &Options::freeze)
      .def("unfreeze", &Options::unfreeze)
      .def("state", &options_state)
      .def("restore_state", &restore)
      .def("same_as", [](const Options& self, const Options& other) { return self == other; })
      .def_property_readonly(
          "Training", [](Options& self) -> TrainingOptions& { return self.Training(); },
          same_object)
      .def_property_readonly(
          "Precision", [](Options& self) -> PrecisionOptions& { return self.Precision(); },
          same_object)
      .def_property_readonly(
          "TensorLocations",
          [](Options& self) -> TensorLocationOptions& { return self.TensorLocations(); },
          same_object)
      .def_property_readonly(
          "Distributed", [](Options& self) -> DistributedOptions& { return self.Distributed(); },
          same_object)
      .def_property_readonly(
          "Jit", [](Options& self) -> JitOptions& { return self.Jit(); }, same_object)
      .def_property_readonly(
          "Popart", [](Options& self) -> PopartOptions& { return self.Popart(); }, same_object);

  module.def("popart_option_keys", &popart_option_keys);
  module.def("_validateOptions", &validate_options);
  module.def("check_pipeline", &check_pipeline);
  module.def("blank_options", &Options::blank);
  module.def("combined_batch_size", &combined_batch_size);
  module.def("batch_count", &batch_count);
}

}  // namespace tessera
