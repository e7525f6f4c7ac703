#include "tessera/api/options/options.h"

#include <ATen/Context.h>

#include <cstdlib>

#include "tessera/api/environment.h"
#include "tessera/api/options/option_warnings.h"
#include "tessera/api/options/options_json.h"
#include "tessera/api/spoken.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"

namespace tessera {
namespace {

OptionEnum output_mode_value(std::optional<OutputMode> mode) {
  return {std::string(enum_name<OutputMode>),
          mode ? static_cast<int64_t>(*mode) : unset_output_mode};
}

void known_version(std::string_view name, const OptionValue& value) {
  const int64_t version = value.as<int64_t>();
  check(version == 1 || version == 2 || version == 21, ErrorKind::value,
        "{} must be 1, 2 or 21, got {}", name, version);
}

void only_texts(std::string_view name, const OptionValue& value) {
  for (const OptionValue& item : value.as<OptionList>().items) {
    check(item.is<std::string>(), ErrorKind::assertion, "{} must be a list of str, it has {}", name,
          spoken_type(item));
  }
}

// {0: 0.6}: proportions by number of the device.
void proportions_by_device(std::string_view name, const OptionValue& value) {
  for (const auto& [device, proportion] : value.as<OptionDict>().entries) {
    check(device.is<int64_t>(), ErrorKind::assertion,
          "{} has a key {}, which is no number of an IPU", name, to_string(device));
    check(proportion.is<double>() || proportion.is<int64_t>(), ErrorKind::assertion,
          "{}: the proportion for IPU {} must be a float, not {}", name, to_string(device),
          spoken_type(proportion));
    const double share = proportion.is<double>() ? proportion.as<double>()
                                                 : static_cast<double>(proportion.as<int64_t>());
    check(share >= 0 && share <= 1, ErrorKind::value,
          "{}: the proportion for IPU {} must be from 0 to 1, got {}", name, to_string(device),
          share);
  }
}

std::span<const OptionField> option_fields() {
  static const OptionField rows[] = {
      {.name = "replication_factor",
       .kind = OptionKind::integer,
       .initial = 1,
       .rule = at_least_one},
      {.name = "input_group_size", .kind = OptionKind::integer, .initial = 1, .rule = at_least_one},
      {.name = "input_group_type",
       .kind = OptionKind::choice,
       .initial = option_enum(CommGroupType::consecutive),
       .choices = enum_name<CommGroupType>},
      {.name = "broadcast_buffers", .kind = OptionKind::flag, .initial = true},
      {.name = "device_iterations",
       .kind = OptionKind::integer,
       .initial = 1,
       .rule = at_least_one},
      {.name = "log_dir", .kind = OptionKind::text, .initial = "."},
      {.name = "auto_round_num_ipus", .kind = OptionKind::flag, .initial = false},
      {.name = "anchored_tensors", .kind = OptionKind::dict, .initial = OptionDict{}},
      {.name = "output_mode",
       .kind = OptionKind::choice,
       .initial = output_mode_value(std::nullopt),
       .choices = enum_name<OutputMode>},
      {.name = "output_return_period",
       .kind = OptionKind::integer,
       .initial = 1,
       .rule = at_least_one},
      {.name = "connection_type",
       .kind = OptionKind::choice,
       .initial = option_enum(ConnectionType::always),
       .choices = enum_name<ConnectionType>},
      // 0 pipelined, 1 sharded, 2 in phases.
      {.name = "execution_mode", .kind = OptionKind::integer, .initial = 0},
      {.name = "execution_stages", .kind = OptionKind::integer, .initial = 1, .rule = at_least_one},
      {.name = "sync_pattern",
       .kind = OptionKind::choice,
       .initial = option_enum(SyncPattern::full),
       .choices = enum_name<SyncPattern>},
      {.name = "available_memory_proportion",
       .kind = OptionKind::dict,
       .initial = OptionDict{},
       .rule = proportions_by_device},
      {.name = "max_repeat_logs",
       .kind = OptionKind::integer,
       .initial = 4,
       .rule = not_negative,
       .may_be_none = true},
      {.name = "use_model", .kind = OptionKind::flag},
      {.name = "ipu_version", .kind = OptionKind::integer, .rule = known_version},
      {.name = "ipu_id", .kind = OptionKind::integer, .rule = not_negative},
      {.name = "random_seed", .kind = OptionKind::integer, .rule = not_negative},
      {.name = "model_name", .kind = OptionKind::text},
      {.name = "updatable_named_buffers", .kind = OptionKind::list, .rule = only_texts},
      {.name = "relax_optimizer_checks", .kind = OptionKind::flag, .initial = false},
      {.name = "show_compilation_progress_bar", .kind = OptionKind::flag, .initial = true},
      {.name = "module_namescope_enabled", .kind = OptionKind::flag, .initial = true},
      {.name = "source_location_excludes",
       .kind = OptionKind::list,
       .initial = std::vector<std::string>{"install/poptorch", "site-packages/torch",
                                           "site-packages/poptorch"},
       .rule = only_texts},
      {.name = "precise_results", .kind = OptionKind::flag},
      {.name = "autotuned", .kind = OptionKind::flag},
  };
  return rows;
}

}  // namespace

Options::Options() : Options(std::make_shared<bool>(false)) {
  const char* folder = std::getenv("POPTORCH_CACHE_DIR");
  if (folder && *folder) enableExecutableCaching(folder);
  const char* offline = std::getenv("TESSERA_OFFLINE");
  if (offline && *offline) {
    const std::string_view word = offline;
    check(word == "0" || word == "1", ErrorKind::value,
          "the environment variable TESSERA_OFFLINE must be 0 or 1, got '{}'", word);
    if (word == "1") connectionType(ConnectionType::never);
  }
  const char* defaults = std::getenv("POPTORCH_DEFAULT_OPTIONS");
  if (defaults && *defaults) {
    const ErrorContext where("reading POPTORCH_DEFAULT_OPTIONS");
    from_json(defaults);
  }
}

Options::Options(std::shared_ptr<bool> frozen)
    : OptionGroup("Options", option_fields(), frozen),
      popart_(frozen),
      training_(frozen, popart_),
      precision_(frozen, popart_),
      tensor_locations_(frozen),
      distributed_(frozen),
      jit_(frozen) {}

Options::Options(const Options& other) : Options(std::make_shared<bool>(false)) { *this = other; }

Options& Options::operator=(const Options& other) {
  if (this == &other) return *this;
  copy_values(other);
  popart_.copy_values(other.popart_);
  training_.copy_values(other.training_);
  precision_.copy_values(other.precision_);
  tensor_locations_.copy_values(other.tensor_locations_);
  distributed_.copy_values(other.distributed_);
  jit_.copy_values(other.jit_);
  return *this;
}

bool Options::operator==(const Options& other) const {
  return OptionGroup::operator==(other) && popart_ == other.popart_ &&
         training_ == other.training_ && precision_ == other.precision_ &&
         tensor_locations_ == other.tensor_locations_ && distributed_ == other.distributed_;
}

Options& Options::deviceIterations(int64_t iterations) {
  set("device_iterations", iterations);
  return *this;
}

Options& Options::replicationFactor(int64_t replicas) {
  set("replication_factor", replicas);
  return *this;
}

Options& Options::inputReplicaGrouping(int64_t size, CommGroupType type) {
  check_changeable();
  check(type != CommGroupType::all, ErrorKind::value,
        "inputReplicaGrouping: CommGroupType.All is not supported; give a group size equal to the "
        "replication factor");
  if (type == CommGroupType::none) size = 1;
  const int64_t replicas = replication_factor();
  check(size >= 1 && size <= replicas && replicas % size == 0, ErrorKind::value,
        "inputReplicaGrouping: the size of a group, {}, must be a factor of the replication "
        "factor, {}; call replicationFactor first",
        size, replicas);
  set("input_group_size", size);
  set("input_group_type", option_enum(type));
  return *this;
}

Options& Options::broadcastBuffers(bool broadcast) {
  set("broadcast_buffers", broadcast);
  return *this;
}

Options& Options::outputMode(OutputMode mode, std::optional<int64_t> period) {
  check_changeable();
  if (mode == OutputMode::every_n) {
    check(period.value_or(0) >= 1, ErrorKind::assertion,
          "OutputMode.EveryN needs an output_return_period of at least 1");
  } else if (period.value_or(0) != 0) {
    log(LogLevel::info, "outputMode: output_return_period is for OutputMode.EveryN only; ignored");
    period.reset();
  }
  set("output_mode", output_mode_value(mode));
  set("output_return_period", period.value_or(1));
  return *this;
}

Options& Options::resetOutputMode() {
  set("output_mode", output_mode_value(std::nullopt));
  set("output_return_period", 1);
  return *this;
}

std::optional<OutputMode> Options::output_mode() const {
  const int64_t number = get("output_mode").as<OptionEnum>().number;
  if (number == unset_output_mode) return std::nullopt;
  return static_cast<OutputMode>(number);
}

Options& Options::autoRoundNumIPUs(bool round) {
  set("auto_round_num_ipus", round);
  return *this;
}

Options& Options::setAvailableMemoryProportion(const std::map<std::string, double>& proportions) {
  OptionDict by_device;
  for (const auto& [key, proportion] : proportions) {
    const bool named = key.starts_with("IPU") && key.size() > 3 &&
                       key.find_first_not_of("0123456789", 3) == std::string::npos;
    check(named, ErrorKind::assertion,
          "setAvailableMemoryProportion takes a dictionary such as {{\"IPU0\": 0.5}}, where 0 is "
          "the number of the IPU; '{}' is no such key",
          key);
    by_device.set(int64_t{std::atoll(key.c_str() + 3)}, proportion);
  }
  set("available_memory_proportion", std::move(by_device));
  return *this;
}

Options& Options::connectionType(ConnectionType type) {
  set("connection_type", option_enum(type));
  return *this;
}

ConnectionType Options::connection_type() const {
  return choice<ConnectionType>("connection_type");
}

CommGroupType Options::input_group_type() const {
  return choice<CommGroupType>("input_group_type");
}

Options& Options::useIpuModel(bool use) {
  set("use_model", use);
  return *this;
}

Options& Options::useOfflineIpuTarget(int64_t version) {
  set("ipu_version", version);
  return connectionType(ConnectionType::never);
}

Options& Options::useIpuId(int64_t id) {
  set("ipu_id", id);
  return *this;
}

Options& Options::syncPattern(SyncPattern pattern) {
  set("sync_pattern", option_enum(pattern));
  return *this;
}

Options& Options::randomSeed(int64_t seed) {
  set("random_seed", seed);
  at::manual_seed(static_cast<uint64_t>(seed));
  return *this;
}

Options& Options::enableExecutableCaching(const std::optional<std::string>& folder) {
  if (folder) popart_.set("cachePath", *folder);
  popart_.set("enableEngineCaching", folder.has_value());
  return *this;
}

std::optional<std::string> Options::executable_cache() const {
  if (!popart_.get("enableEngineCaching", false)) return std::nullopt;
  return popart_.get<std::string>("cachePath", "");
}

Options& Options::logDir(const std::string& folder) {
  set("log_dir", folder);
  return *this;
}

Options& Options::modelName(const std::string& name) {
  set("model_name", name);
  return *this;
}

Options& Options::maxRepeatLogs(std::optional<int64_t> times) {
  set("max_repeat_logs", times ? OptionValue(*times) : OptionValue());
  return *this;
}

Options& Options::enableSyntheticData(bool enabled) {
  popart_.set("syntheticDataMode", enabled ? 2 : 0);  // normally distributed numbers, or none
  return *this;
}

bool Options::synthetic_data() const { return popart_.get<int64_t>("syntheticDataMode", 0) != 0; }

Options& Options::enableStableNorm(bool enabled) {
  popart_.set("enableStableNorm", enabled);
  return *this;
}

Options& Options::logCycleCount(bool log) {
  popart_.set("instrumentWithHardwareCycleCounter", log);
  return *this;
}

bool Options::log_cycle_count() const {
  return popart_.get("instrumentWithHardwareCycleCounter", false);
}

Options& Options::enableProfiling(const std::optional<std::string>& folder) {
  check_changeable();
  const char* text = std::getenv("POPLAR_ENGINE_OPTIONS");
  const std::string_view environment = text ? text : "";
  for (const char* key : {"debug.allowOutOfMemory", "autoReport.directory", "autoReport.all"}) {
    if (environment.find(key) == std::string_view::npos) continue;
    warn_about_option(
        "enableProfiling: POPLAR_ENGINE_OPTIONS in the environment sets {} too, and wins", key);
    break;
  }
  OptionDict options = popart_.get("engineOptions", OptionDict{});
  options.set("debug.allowOutOfMemory", "true");
  options.set("autoReport.directory", folder && !folder->empty() ? *folder : ".");
  options.set("autoReport.all", "true");
  popart_.set("engineOptions", std::move(options));
  return *this;
}

std::optional<std::string> Options::profile_dir() const {
  const auto options = popart_.get("engineOptions", OptionDict{});
  const OptionValue* all = options.find("autoReport.all");
  const OptionValue* folder = options.find("autoReport.directory");
  if (!all || tessera::to_string(*all) != "true") return std::nullopt;
  return folder ? tessera::to_string(*folder) : ".";
}

void Options::anchorTensor(const std::string& short_name, const std::string& long_name,
                           std::optional<OutputMode> mode, int64_t period) {
  check(mode != OutputMode::every_n || period >= 1, ErrorKind::assertion,
        "anchorTensor: OutputMode.EveryN needs an output_return_period of at least 1");
  if (mode != OutputMode::every_n) period = 1;
  // PopTorch's own form: the name, whether the model's mode holds, the mode, the period.
  OptionList anchor;
  anchor.items = {long_name, !mode, mode ? OptionValue(output_mode_value(mode)) : OptionValue(),
                  period};
  value("anchored_tensors").as<OptionDict>().set(short_name, std::move(anchor));
}

std::map<std::string, AnchoredTensor> Options::anchored_tensors() const {
  std::map<std::string, AnchoredTensor> anchors;
  for (const auto& [name, value] : get("anchored_tensors").as<OptionDict>().entries) {
    check(name.is<std::string>() && value.is<OptionList>() &&
              value.as<OptionList>().items.size() == 4,
          "anchored_tensors must be filled with anchorTensor()");
    const auto& items = value.as<OptionList>().items;
    AnchoredTensor anchor{tessera::to_string(items[0])};
    if (items[2].is<OptionEnum>()) {
      anchor.mode = static_cast<OutputMode>(items[2].as<OptionEnum>().number);
    }
    if (items[3].is<int64_t>()) anchor.period = items[3].as<int64_t>();
    anchors.emplace(name.as<std::string>(), std::move(anchor));
  }
  return anchors;
}

Options& Options::updatableNamedBuffers(const std::vector<std::string>& names) {
  set("updatable_named_buffers", names);
  return *this;
}

std::optional<std::vector<std::string>> Options::updatable_named_buffers() const {
  if (!exists("updatable_named_buffers")) return std::nullopt;
  return texts_of(get("updatable_named_buffers").as<OptionList>());
}

Options& Options::relaxOptimizerAttributesChecks(bool relax) {
  set("relax_optimizer_checks", relax);
  return *this;
}

Options& Options::showCompilationProgressBar(bool show) {
  set("show_compilation_progress_bar", show);
  return *this;
}

Options& Options::disableModuleNamescope() {
  set("module_namescope_enabled", false);
  return *this;
}

Options& Options::sourceLocationExcludes(const std::vector<std::string>& excludes) {
  set("source_location_excludes", excludes);
  return *this;
}

Options& Options::appendToLocationExcludes(const std::vector<std::string>& excludes) {
  auto all = source_location_excludes();
  all.insert(all.end(), excludes.begin(), excludes.end());
  return sourceLocationExcludes(all);
}

std::vector<std::string> Options::source_location_excludes() const {
  return texts_of(get("source_location_excludes").as<OptionList>());
}

Options& Options::from_json(std::string_view json) {
  set_from_json(*this, json);
  return *this;
}

Options& Options::precise(bool precise) {
  set("precise_results", precise);
  return *this;
}

Options& Options::autotune(bool autotune) {
  set("autotuned", autotune);
  return *this;
}

int64_t Options::micro_batches() const {
  check(replication_factor() % input_group_size() == 0, ErrorKind::value,
        "the replication factor, {}, must be a multiple of the size of the groups that "
        "inputReplicaGrouping made, {}",
        replication_factor(), input_group_size());
  constexpr int64_t most = int64_t{1} << 31;  // each has its times, which are kept
  int64_t count = replication_factor() / input_group_size();
  const bool overflows = __builtin_mul_overflow(count, device_iterations(), &count) ||
                         __builtin_mul_overflow(count, training_.gradient_accumulation(), &count);
  check(!overflows && count <= most, ErrorKind::value,
        "deviceIterations ({}) x replicationFactor ({}) x gradientAccumulation ({}) are more "
        "micro-batches than can be counted; use smaller numbers",
        device_iterations(), replication_factor(), training_.gradient_accumulation());
  return count;
}

void Options::check_for_compile() const {
  popart_.check();
  for (const OptionGroup* group :
       {static_cast<const OptionGroup*>(this), static_cast<const OptionGroup*>(&training_),
        static_cast<const OptionGroup*>(&distributed_),
        static_cast<const OptionGroup*>(&tensor_locations_)}) {
    for (const auto& [name, value] : group->values()) log_option(name, value);
  }
  if (integer("execution_stages") > 1) {
    warn_about_option(
        "setExecutionStrategy: the {} stages run one after the other on one device; running them "
        "side by side is not supported yet, the results are the same",
        integer("execution_stages"));
  }
  if (const auto use = use_ipu_model()) {
    log(LogLevel::info, "From the user configuration: Ipu model: {}",
        *use ? "Enabled" : "Disabled");
  }
  if (!ipu_version()) return;
  check(!ipu_model(*this),
        "useOfflineIpuTarget: an offline target cannot be used with the IPU model");
  check(!ipu_id(), "useOfflineIpuTarget: an offline target cannot be used with useIpuId({})",
        ipu_id().value_or(0));
}

std::string Options::to_string() const {
  std::string text = OptionGroup::to_string();
  text.pop_back();
  return fmt::format(
      "{}, TensorLocations={}, Distributed={}, Jit={}, Precision={}, Training={}, "
      "_Popart={})",
      text, tensor_locations_.to_string(), distributed_.to_string(), jit_.to_string(),
      precision_.to_string(), training_.to_string(), popart_.to_string());
}

}  // namespace tessera
