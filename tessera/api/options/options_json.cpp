#include "tessera/api/options/options_json.h"

#include <nlohmann/json.hpp>

#include "tessera/api/options/options.h"
#include "tessera/api/spoken.h"
#include "tessera/base/error.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;  // setters are called in the order they have

OptionValue value_of(const Json& json, int depth = 0) {
  constexpr int deepest = 100;
  check(depth <= deepest, ErrorKind::value, "options as JSON have lists in lists, {} deep", depth);
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > uint64_t{INT64_MAX}) return OptionUnknown{"an int beyond 64 bits"};
      return json.get<int64_t>();
    case Json::value_t::number_integer:
      return json.get<int64_t>();
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string: {
      auto text = json.get<std::string>();
      if (auto member = enum_named(text)) return *member;
      return text;
    }
    case Json::value_t::array: {
      OptionList list;
      for (const Json& item : json) list.items.push_back(value_of(item, depth + 1));
      return list;
    }
    case Json::value_t::object: {
      OptionDict dict;
      for (const auto& [key, item] : json.items()) dict.set(key, value_of(item, depth + 1));
      return dict;
    }
    default:
      return {};
  }
}

// The arguments of a setter. Each is read as the type the setter takes, or refused.
class Arguments {
 public:
  Arguments(std::string_view setter, const Json& json) : setter_(setter) {
    if (json.is_array()) {
      for (const Json& item : json) values_.push_back(value_of(item));
    } else {
      values_.push_back(value_of(json));
    }
  }

  size_t size() const { return values_.size(); }
  const OptionValue& operator[](size_t i) const { return values_[i]; }

  bool flag(size_t i) const { return as<bool>(i, "a bool"); }
  int64_t integer(size_t i) const { return as<int64_t>(i, "an int"); }
  const std::string& text(size_t i) const { return as<std::string>(i, "a str"); }
  const OptionDict& dict(size_t i) const { return as<OptionDict>(i, "a dict"); }
  bool truth(size_t i) const {
    return values_[i].is<int64_t>() ? values_[i].as<int64_t>() != 0 : flag(i);
  }
  std::optional<std::string> text_or_none(size_t i) const {
    if (i >= size() || values_[i].is<OptionNone>()) return std::nullopt;
    return text(i);
  }
  template <typename Enum>
  Enum choice(size_t i) const {
    const bool right =
        values_[i].is<OptionEnum>() && values_[i].as<OptionEnum>().type == enum_name<Enum>;
    check(right, ErrorKind::assertion, "{} takes a member of poptorch.{}, not {}", setter_,
          enum_name<Enum>, spoken_value(values_[i]));
    return static_cast<Enum>(values_[i].as<OptionEnum>().number);
  }

 private:
  template <typename T>
  const T& as(size_t i, std::string_view wanted) const {
    check(values_[i].is<T>(), ErrorKind::assertion, "{} takes {}, not {}", setter_, wanted,
          spoken_value(values_[i]));
    return values_[i].as<T>();
  }

  std::string_view setter_;
  std::vector<OptionValue> values_;
};

void set_output_mode(Options& options, const Arguments& arguments) {
  const auto mode = arguments.choice<OutputMode>(0);
  if (static_cast<int64_t>(mode) == unset_output_mode) {
    options.resetOutputMode();
    return;
  }
  std::optional<int64_t> period;
  if (arguments.size() > 1) period = arguments.integer(1);
  options.outputMode(mode, period);
}

void set_memory_proportions(Options& options, const Arguments& arguments) {
  std::map<std::string, double> proportions;
  for (const auto& [key, value] : arguments.dict(0).entries) {
    const bool number = value.is<double>() || value.is<int64_t>();
    check(number, ErrorKind::assertion, "setAvailableMemoryProportion: '{}' must be a float",
          to_string(value));
    proportions[to_string(key)] =
        value.is<double>() ? value.as<double>() : static_cast<double>(value.as<int64_t>());
  }
  options.setAvailableMemoryProportion(proportions);
}

void add_anchor(Options& options, const Arguments& arguments) {
  std::optional<OutputMode> mode;
  if (arguments.size() > 2) mode = arguments.choice<OutputMode>(2);
  if (mode && static_cast<int64_t>(*mode) == unset_output_mode) mode.reset();
  options.anchorTensor(arguments.text(0), arguments.text(1), mode,
                       arguments.size() > 3 ? arguments.integer(3) : 1);
}

void append_excludes(Options& options, const Arguments& arguments) {
  std::vector<std::string> excludes;
  for (size_t i = 0; i < arguments.size(); ++i) excludes.push_back(arguments.text(i));
  options.appendToLocationExcludes(excludes);
}

void set_partials_type(Options& options, const Arguments& arguments) {
  const std::string& name = arguments.text(0);
  const bool half = name == "torch.half" || name == "torch.float16";
  check(half || name == "torch.float" || name == "torch.float32", ErrorKind::value,
        "setPartialsType takes torch.float or torch.half, not {}", name);
  options.Precision().setPartialsType(half ? at::kHalf : at::kFloat);
}

void set_patterns(Options& options, const Arguments& arguments) {
  std::map<std::string, bool> patterns;
  for (const auto& [name, enabled] : arguments.dict(0).entries) {
    check(enabled.is<bool>(), ErrorKind::assertion, "setPatterns: {} must be true or false",
          to_string(name));
    patterns[to_string(name)] = enabled.as<bool>();
  }
  options.Popart().setPatterns(patterns, arguments.size() > 1 ? arguments.integer(1) : 2);
}

// Setters of one value, whose rule is that of the option's row. `otherwise` is the argument's value
// where it may be left out.
struct PlainSetter {
  std::string_view path;
  OptionGroup& (*group)(Options&);
  std::string_view option;
  std::optional<bool> otherwise = {};
};

OptionGroup& main(Options& options) { return options; }
OptionGroup& training(Options& options) { return options.Training(); }
OptionGroup& locations(Options& options) { return options.TensorLocations(); }

constexpr PlainSetter plain_setters[] = {
    {"deviceIterations", main, "device_iterations"},
    {"replicationFactor", main, "replication_factor"},
    {"broadcastBuffers", main, "broadcast_buffers", true},
    {"autoRoundNumIPUs", main, "auto_round_num_ipus", true},
    {"connectionType", main, "connection_type"},
    {"useIpuModel", main, "use_model"},
    {"useIpuId", main, "ipu_id"},
    {"syncPattern", main, "sync_pattern"},
    {"logDir", main, "log_dir"},
    {"modelName", main, "model_name"},
    {"maxRepeatLogs", main, "max_repeat_logs"},
    {"updatableNamedBuffers", main, "updatable_named_buffers"},
    {"relaxOptimizerAttributesChecks", main, "relax_optimizer_checks", true},
    {"showCompilationProgressBar", main, "show_compilation_progress_bar", true},
    {"sourceLocationExcludes", main, "source_location_excludes"},
    {"precise", main, "precise_results", true},
    {"autotune", main, "autotuned", true},
    {"Training.gradientAccumulation", training, "gradient_accumulation"},
    {"Training.accumulationAndReplicationReductionType", training,
     "accumulation_and_replication_reduction_type"},
    {"Training.setMeanAccumulationAndReplicationReductionStrategy", training,
     "meanAccumulationAndReplicationReductionStrategy"},
    {"TensorLocations.numIOTiles", locations, "numIOTiles"},
};

// All others.
struct Setter {
  std::string_view path;
  size_t fewest, most;  // arguments
  void (*call)(Options& options, const Arguments& arguments);
};

constexpr Setter setters[] = {
    {"inputReplicaGrouping", 2, 2,
     [](Options& o, const Arguments& a) {
       o.inputReplicaGrouping(a.integer(0), a.choice<CommGroupType>(1));
     }},
    {"outputMode", 1, 2, set_output_mode},
    {"setAvailableMemoryProportion", 1, 1, set_memory_proportions},
    {"useOfflineIpuTarget", 0, 1,
     [](Options& o, const Arguments& a) { o.useOfflineIpuTarget(a.size() ? a.integer(0) : 2); }},
    {"randomSeed", 1, 1, [](Options& o, const Arguments& a) { o.randomSeed(a.integer(0)); }},
    {"enableExecutableCaching", 1, 1,
     [](Options& o, const Arguments& a) { o.enableExecutableCaching(a.text_or_none(0)); }},
    {"enableSyntheticData", 1, 1,
     [](Options& o, const Arguments& a) { o.enableSyntheticData(a.truth(0)); }},
    {"enableStableNorm", 1, 1,
     [](Options& o, const Arguments& a) { o.enableStableNorm(a.flag(0)); }},
    {"logCycleCount", 1, 1, [](Options& o, const Arguments& a) { o.logCycleCount(a.flag(0)); }},
    {"enableProfiling", 0, 1,
     [](Options& o, const Arguments& a) { o.enableProfiling(a.text_or_none(0)); }},
    {"anchorTensor", 2, 4, add_anchor},
    {"disableModuleNamescope", 0, 0,
     [](Options& o, const Arguments&) { o.disableModuleNamescope(); }},
    {"appendToLocationExcludes", 0, 1000, append_excludes},
    {"Training.setAutomaticLossScaling", 1, 1,
     [](Options& o, const Arguments& a) { o.Training().setAutomaticLossScaling(a.flag(0)); }},
    {"Training.setConvolutionDithering", 1, 1,
     [](Options& o, const Arguments& a) { o.Training().setConvolutionDithering(a.flag(0)); }},
    {"Precision.enableFloatingPointExceptions", 1, 1,
     [](Options& o, const Arguments& a) {
       o.Precision().enableFloatingPointExceptions(a.flag(0));
     }},
    {"Precision.enableStochasticRounding", 1, 1,
     [](Options& o, const Arguments& a) { o.Precision().enableStochasticRounding(a.flag(0)); }},
    {"Precision.setPartialsType", 1, 1, set_partials_type},
    {"Precision.halfFloatCasting", 1, 1,
     [](Options& o, const Arguments&) { o.Precision().halfFloatCasting(); }},
    {"Precision.runningStatisticsAlwaysFloat", 1, 1,
     [](Options& o, const Arguments& a) { o.Precision().runningStatisticsAlwaysFloat(a.flag(0)); }},
    {"Jit.traceModel", 1, 1, [](Options& o, const Arguments& a) { o.Jit().traceModel(a.flag(0)); }},
    {"Distributed.disable", 0, 0, [](Options& o, const Arguments&) { o.Distributed().disable(); }},
    {"Distributed.configureProcessId", 2, 2,
     [](Options& o, const Arguments& a) {
       o.Distributed().configureProcessId(a.integer(0), a.integer(1));
     }},
    {"Distributed.setEnvVarNames", 2, 2,
     [](Options& o, const Arguments& a) { o.Distributed().setEnvVarNames(a.text(0), a.text(1)); }},
    {"_Popart.set", 2, 2, [](Options& o, const Arguments& a) { o.Popart().set(a.text(0), a[1]); }},
    {"_Popart.setEngineOptions", 1, 1,
     [](Options& o, const Arguments& a) { o.Popart().set("engineOptions", a.dict(0)); }},
    {"_Popart.setPatterns", 1, 2, set_patterns},
};

void check_count(std::string_view path, size_t count, size_t fewest, size_t most) {
  check(count >= fewest && count <= most, ErrorKind::type, "{} takes {}, but the JSON has {}", path,
        fewest == most ? fmt::format("{} arguments", fewest)
                       : fmt::format("{} to {} arguments", fewest, most),
        count);
}

void call_setter(Options& options, const std::string& name, const Json& json) {
  const std::string path = name.starts_with("Popart.") ? "_" + name : name;
  const Arguments arguments(path, json);
  for (const PlainSetter& setter : plain_setters) {
    if (setter.path != path) continue;
    check_count(path, arguments.size(), setter.otherwise ? 0 : 1, 1);
    setter.group(options).set(setter.option,
                              arguments.size() ? arguments[0] : OptionValue(*setter.otherwise));
    return;
  }
  for (const Setter& setter : setters) {
    if (setter.path != path) continue;
    check_count(path, arguments.size(), setter.fewest, setter.most);
    setter.call(options, arguments);
    return;
  }
  fail(ErrorKind::attribute, "Options have no setter '{}'", name);
}

}  // namespace

void set_from_json(Options& options, std::string_view json) {
  constexpr size_t shown = 60;
  const Json settings = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  check(settings.is_object(), ErrorKind::value,
        "options as JSON must be an object such as {{\"deviceIterations\": 2}}, not '{}'{}",
        json.substr(0, shown), json.size() > shown ? "..." : "");
  for (const auto& [name, value] : settings.items()) call_setter(options, name, value);
}

}  // namespace tessera
