#include "tessera/api/options/option_groups.h"

#include "tessera/api/environment.h"
#include "tessera/api/options/option_warnings.h"
#include "tessera/api/spoken.h"
#include "tessera/base/error.h"

namespace tessera {
namespace {

void mean_or_sum(std::string_view, const OptionValue& value) {
  const auto type = static_cast<ReductionType>(value.as<OptionEnum>().number);
  check(type == ReductionType::mean || type == ReductionType::sum, ErrorKind::value,
        "accumulationAndReplicationReductionType must be set to poptorch.ReductionType.Mean or "
        "poptorch.ReductionType.Sum");
}

void not_with_the_loss(std::string_view, const OptionValue& value) {
  const auto strategy = static_cast<MeanReductionStrategy>(value.as<OptionEnum>().number);
  if (strategy != MeanReductionStrategy::post_and_loss) return;
  warn_about_option(
      "poptorch.MeanReductionStrategy.PostAndLoss is deprecated; it has the results of Post");
}

void io_tiles(std::string_view, const OptionValue& value) {
  const int64_t tiles = value.as<int64_t>();
  check(tiles >= 32 && tiles <= 192 && tiles % 2 == 0, ErrorKind::assertion,
        "numIOTiles must be an even number between 32 and 192. Got {}", tiles);
}

std::span<const OptionField> training_fields() {
  static const OptionField fields[] = {
      {.name = "gradient_accumulation",
       .kind = OptionKind::integer,
       .initial = 1,
       .rule = at_least_one},
      {.name = "accumulation_and_replication_reduction_type",
       .kind = OptionKind::choice,
       .initial = option_enum(ReductionType::mean),
       .rule = mean_or_sum,
       .choices = enum_name<ReductionType>,
       .wrong_type = ErrorKind::value},
      // PopTorch's own spelling.
      {.name = "meanAccumulationAndReplicationReductionStrategy",
       .kind = OptionKind::choice,
       .initial = option_enum(MeanReductionStrategy::post),
       .rule = not_with_the_loss,
       .choices = enum_name<MeanReductionStrategy>},
  };
  return fields;
}

std::span<const OptionField> location_settings_fields() {
  static const OptionField fields[] = {
      {.name = "onChip", .kind = OptionKind::integer},
      {.name = "useReplicatedTensorSharding", .kind = OptionKind::integer},
      {.name = "useIOTilesToLoad", .kind = OptionKind::integer},
      {.name = "useIOTilesToStore", .kind = OptionKind::integer},
      {.name = "minElementsForOffChip", .kind = OptionKind::integer},
      {.name = "minElementsForReplicatedTensorSharding", .kind = OptionKind::integer},
  };
  return fields;
}

std::span<const OptionField> location_fields() {
  static const OptionField fields[] = {
      {.name = "numIOTiles", .kind = OptionKind::integer, .rule = io_tiles},
      {.name = "location_activation", .kind = OptionKind::dict},
      {.name = "location_weight", .kind = OptionKind::dict},
      {.name = "location_optimizer", .kind = OptionKind::dict},
      {.name = "location_accumulator", .kind = OptionKind::dict},
  };
  return fields;
}

std::span<const OptionField> distributed_fields() {
  static const OptionField fields[] = {
      {.name = "num_distributed_processes",
       .kind = OptionKind::integer,
       .initial = 1,
       .rule = at_least_one},
      {.name = "distributed_process_id",
       .kind = OptionKind::integer,
       .initial = 0,
       .rule = not_negative},
  };
  return fields;
}

// A type by PopART's word for it.
at::ScalarType partials_type_named(const OptionValue* word, std::string_view setting) {
  if (!word) return at::kFloat;
  const bool half = *word == OptionValue("half");
  check(half || *word == OptionValue("float"), "{} must be 'half' or 'float', not {}", setting,
        to_string(*word));
  return half ? at::kHalf : at::kFloat;
}

}  // namespace

TrainingOptions::TrainingOptions(std::shared_ptr<bool> frozen, PopartOptions& popart)
    : OptionGroup("_TrainingOptions", training_fields(), std::move(frozen)), popart_(popart) {}

TrainingOptions& TrainingOptions::gradientAccumulation(int64_t micro_batches) {
  set("gradient_accumulation", micro_batches);
  return *this;
}

TrainingOptions& TrainingOptions::accumulationAndReplicationReductionType(ReductionType type) {
  set("accumulation_and_replication_reduction_type", option_enum(type));
  return *this;
}

TrainingOptions& TrainingOptions::setMeanAccumulationAndReplicationReductionStrategy(
    MeanReductionStrategy strategy) {
  set("meanAccumulationAndReplicationReductionStrategy", option_enum(strategy));
  return *this;
}

TrainingOptions& TrainingOptions::setAutomaticLossScaling(bool enabled) {
  popart_.set("automaticLossScalingSettings.enabled", enabled);
  return *this;
}

TrainingOptions& TrainingOptions::setConvolutionDithering(bool enabled) {
  OptionDict options;
  options.set("enableConvDithering", enabled);
  popart_.set("convolutionOptions", std::move(options));
  return *this;
}

ReductionType TrainingOptions::accumulation_and_replication_reduction_type() const {
  return choice<ReductionType>("accumulation_and_replication_reduction_type");
}

MeanReductionStrategy TrainingOptions::mean_accumulation_and_replication_reduction_strategy()
    const {
  return choice<MeanReductionStrategy>("meanAccumulationAndReplicationReductionStrategy");
}

bool TrainingOptions::automatic_loss_scaling() const {
  return popart_.get("automaticLossScalingSettings.enabled", false);
}

AutomaticLossScaling TrainingOptions::automatic_loss_scaling_settings() const {
  AutomaticLossScaling settings{.enabled = automatic_loss_scaling()};
  const auto named = [](std::string_view name) {
    return fmt::format("automaticLossScalingSettings.{}", name);
  };
  const auto share = [&](std::string_view name, double& value) {
    value = popart_.get(named(name), value);
    check(value >= 0 && value <= 1, ErrorKind::value, "{} must be between 0 and 1, not {}",
          named(name), value);
  };
  share("binEdgeLocation", settings.bin_edge_location);
  share("thresholdUpperCountProportion", settings.threshold_upper_count_proportion);
  settings.update_period = popart_.get(named("updatePeriod"), settings.update_period);
  check(settings.update_period >= 1, ErrorKind::value, "{} must be at least 1, not {}",
        named("updatePeriod"), settings.update_period);
  const auto method = popart_.get(named("gradientTensorTrackingMethod"), int64_t{0});
  check(method == 0 || method == 1, ErrorKind::value,
        "{} must be 0 (all gradients) or 1 (those of products and convolutions), not {}: tensors "
        "of your choice cannot be tracked",
        named("gradientTensorTrackingMethod"), method);
  settings.products_only = method == 1;
  return settings;
}

PrecisionOptions::PrecisionOptions(std::shared_ptr<bool> frozen, PopartOptions& popart)
    : OptionGroup("_PrecisionOptions", {}, std::move(frozen)), popart_(popart) {}

PrecisionOptions& PrecisionOptions::enableFloatingPointExceptions(bool enabled) {
  popart_.set("enableFloatingPointChecks", enabled);
  return *this;
}

PrecisionOptions& PrecisionOptions::enableStochasticRounding(bool enabled) {
  popart_.set("enableStochasticRounding", enabled);
  return *this;
}

PrecisionOptions& PrecisionOptions::setPartialsType(at::ScalarType type) {
  check(type == at::kFloat || type == at::kHalf, ErrorKind::value,
        "setPartialsType takes torch.float or torch.half, not {}", spoken_type(type));
  const char* name = type == at::kHalf ? "half" : "float";
  OptionDict options;
  options.set("partialsType", name);
  popart_.set("partialsTypeMatMuls", name);
  popart_.set("convolutionOptions", std::move(options));
  return *this;
}

PrecisionOptions& PrecisionOptions::halfFloatCasting() {
  check_changeable();
  warn_about_option(
      "Precision.halfFloatCasting is deprecated and does nothing: half and float are mixed by "
      "PyTorch's own rules");
  return *this;
}

PrecisionOptions& PrecisionOptions::runningStatisticsAlwaysFloat(bool) {
  check_changeable();
  warn_about_option(
      "Precision.runningStatisticsAlwaysFloat is deprecated and does nothing: cast running_mean "
      "and running_var to float in the model");
  return *this;
}

bool PrecisionOptions::floating_point_exceptions() const {
  return popart_.get("enableFloatingPointChecks", false);
}

bool PrecisionOptions::stochastic_rounding() const {
  return popart_.get("enableStochasticRounding", false);
}

at::ScalarType PrecisionOptions::partials_type() const {
  return partials_type_named(popart_.find("partialsTypeMatMuls"), "partialsTypeMatMuls");
}

at::ScalarType PrecisionOptions::convolution_partials_type() const {
  const OptionDict convolutions = popart_.get("convolutionOptions", OptionDict());
  return partials_type_named(convolutions.find("partialsType"),
                             "convolutionOptions[\"partialsType\"]");
}

TensorLocationSettings::TensorLocationSettings()
    : OptionGroup("TensorLocationSettings", location_settings_fields(),
                  std::make_shared<bool>(false)) {}

TensorLocationSettings::TensorLocationSettings(const TensorLocationSettings& other)
    : TensorLocationSettings() {
  copy_values(other);
}

TensorLocationSettings& TensorLocationSettings::useOnChipStorage(std::optional<bool> use) {
  if (use) {
    set("onChip", int64_t{*use});
  } else {
    clear("onChip");
  }
  return *this;
}

TensorLocationSettings& TensorLocationSettings::useReplicatedTensorSharding(bool use) {
  set("useReplicatedTensorSharding", int64_t{use});
  return *this;
}

TensorLocationSettings& TensorLocationSettings::useIOTilesToLoad(bool use) {
  set("useIOTilesToLoad", int64_t{use});
  return *this;
}

TensorLocationSettings& TensorLocationSettings::useIOTilesToStore(bool use) {
  set("useIOTilesToStore", int64_t{use});
  return *this;
}

TensorLocationSettings& TensorLocationSettings::minElementsForOffChip(int64_t elements) {
  set("minElementsForOffChip", elements);
  return *this;
}

TensorLocationSettings& TensorLocationSettings::minElementsForReplicatedTensorSharding(
    int64_t elements) {
  set("minElementsForReplicatedTensorSharding", elements);
  return *this;
}

OptionDict TensorLocationSettings::to_dict() const {
  OptionDict dict;
  for (const auto& [option, value] : values()) dict.set(std::string(option), value);
  return dict;
}

TensorLocationOptions::TensorLocationOptions(std::shared_ptr<bool> frozen)
    : OptionGroup("_TensorLocationOptions", location_fields(), std::move(frozen)) {}

TensorLocationOptions& TensorLocationOptions::numIOTiles(int64_t tiles) {
  set("numIOTiles", tiles);
  return *this;
}

TensorLocationOptions& TensorLocationOptions::setActivationLocation(
    const TensorLocationSettings& location) {
  set("location_activation", location.to_dict());
  return *this;
}

TensorLocationOptions& TensorLocationOptions::setWeightLocation(
    const TensorLocationSettings& location) {
  set("location_weight", location.to_dict());
  return *this;
}

TensorLocationOptions& TensorLocationOptions::setOptimizerLocation(
    const TensorLocationSettings& location) {
  set("location_optimizer", location.to_dict());
  return *this;
}

TensorLocationOptions& TensorLocationOptions::setAccumulatorLocation(
    const TensorLocationSettings& location) {
  set("location_accumulator", location.to_dict());
  return *this;
}

DistributedOptions::DistributedOptions(std::shared_ptr<bool> frozen)
    : OptionGroup("_DistributedOptions", distributed_fields(), std::move(frozen)) {
  setEnvVarNames("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK");
}

DistributedOptions& DistributedOptions::configureProcessId(int64_t process_id,
                                                           int64_t num_processes) {
  check(process_id < num_processes, ErrorKind::value,
        "configureProcessId: process {} is none of {} processes, which are counted from 0",
        process_id, num_processes);
  set("distributed_process_id", process_id);
  set("num_distributed_processes", num_processes);
  return *this;
}

DistributedOptions& DistributedOptions::setEnvVarNames(const std::string& var_num_processes,
                                                       const std::string& var_process_id) {
  return configureProcessId(number_in_environment(var_process_id, 0),
                            number_in_environment(var_num_processes, 1));
}

DistributedOptions& DistributedOptions::disable() { return configureProcessId(0, 1); }

JitOptions::JitOptions(std::shared_ptr<bool> frozen)
    : OptionGroup("_JitOptions", {}, std::move(frozen)) {}

JitOptions& JitOptions::traceModel(bool trace) {
  check_changeable();
  check(!trace, ErrorKind::value,
        "Jit.traceModel(True): tracing with torch.jit is gone from PopTorch; leave the option out");
  warn_about_option("Jit.traceModel is deprecated and does nothing");
  return *this;
}

}  // namespace tessera
