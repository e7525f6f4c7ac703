#include "tessera/api/options/popart_options.h"

#include "tessera/api/options/option_warnings.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"

namespace tessera {
namespace {

// What a setting takes. Enumerations are integers; items are a list or a set.
enum class Kind { flag, integer, number, text, items, dict };

struct Key {
  std::string_view name;
  Kind kind;
};

constexpr Key keys[] = {
    {"enableExplicitIR", Kind::flag},
    {"enableInplaceAmbiguityChecking", Kind::flag},
    {"enableLoadAndOffloadRNGState", Kind::flag},
    {"strictOpVersions", Kind::flag},
    {"opxAliasChecking", Kind::flag},
    {"opxModifyChecking", Kind::flag},
    {"dotOpNames", Kind::flag},
    {"exportPoplarComputationGraph", Kind::flag},
    {"exportPoplarVertexGraph", Kind::flag},
    {"separateCallOpPdfs", Kind::flag},
    {"enableOutlining", Kind::flag},
    {"enableOutliningCopyCostPruning", Kind::flag},
    {"rearrangeAnchorsOnHost", Kind::flag},
    {"rearrangeStreamsOnHost", Kind::flag},
    {"enablePrefetchDatastreams", Kind::flag},
    {"enableNonStableSoftmax", Kind::flag},
    {"enableReplicatedGraphs", Kind::flag},
    {"enableGradientAccumulation", Kind::flag},
    {"instrumentWithHardwareCycleCounter", Kind::flag},
    {"enablePipelining", Kind::flag},
    {"disableGradAccumulationTensorStreams", Kind::flag},
    {"disableOptimizerStateTensorStreams", Kind::flag},
    {"compileEngine", Kind::flag},
    {"constantWeights", Kind::flag},
    {"enableEngineCaching", Kind::flag},
    {"enableMergeExchange", Kind::flag},
    {"enableFloatingPointChecks", Kind::flag},
    {"enableStochasticRounding", Kind::flag},
    {"ensureFp32LossScaleTensor", Kind::flag},
    {"explicitRecomputation", Kind::flag},
    {"enableExplicitMainLoops", Kind::flag},
    {"useHostCopyOps", Kind::flag},
    {"aliasZeroCopy", Kind::flag},
    {"delayVarUpdates", Kind::flag},
    {"enableFullyConnectedPass", Kind::flag},
    {"enableSerializedMatmuls", Kind::flag},
    {"enableStableNorm", Kind::flag},
    {"decomposeGradSum", Kind::flag},
    {"enableDistributedReplicatedGraphs", Kind::flag},
    {"groupHostSync", Kind::flag},
    {"enableSupportedDataTypeCasting", Kind::flag},
    {"groupNormStridedChannelGrouping", Kind::flag},
    {"scheduleNonWeightUpdateGradientConsumersEarly", Kind::flag},
    {"automaticLossScalingSettings.enabled", Kind::flag},
    {"batchSerializationSettings.concatOnVirtualGraphChange", Kind::flag},
    {"batchSerializationSettings.concatOnExecutionPhaseChange", Kind::flag},
    {"batchSerializationSettings.concatOnPipelineStageChange", Kind::flag},
    {"replicatedCollectivesSettings.prepareScheduleForMergingCollectives", Kind::flag},
    {"replicatedCollectivesSettings.mergeAllReduceCollectives", Kind::flag},
    {"executionPhaseSettings.phases", Kind::integer},
    {"executionPhaseSettings.stages", Kind::integer},
    {"batchSerializationSettings.factor", Kind::integer},
    {"firstDotOp", Kind::integer},
    {"finalDotOp", Kind::integer},
    {"numIOTiles", Kind::integer},
    {"mergeVarUpdateMemThreshold", Kind::integer},
    {"looseThresholdAtPeak", Kind::integer},
    {"accumulationFactor", Kind::integer},
    {"swapLimitScheduler", Kind::integer},
    {"globalReplicationFactor", Kind::integer},
    {"globalReplicaOffset", Kind::integer},
    {"defaultBufferingDepth", Kind::integer},
    {"defaultPrefetchBufferingDepth", Kind::integer},
    {"compilationProgressTotal", Kind::integer},
    {"transitiveClosureOptimizationThreshold", Kind::integer},
    {"automaticLossScalingSettings.updatePeriod", Kind::integer},
    {"autodiffSettings.stitchStrategy", Kind::integer},
    {"batchSerializationSettings.transformContext", Kind::integer},
    {"batchSerializationSettings.method", Kind::integer},
    {"batchSerializationSettings.batchSchedule", Kind::integer},
    {"autoRecomputation", Kind::integer},
    {"mergeVarUpdate", Kind::integer},
    {"virtualGraphMode", Kind::integer},
    {"syntheticDataMode", Kind::integer},
    {"subgraphCopyingStrategy", Kind::integer},
    {"accumulationAndReplicationReductionType", Kind::integer},
    {"meanAccumulationAndReplicationReductionStrategy", Kind::integer},
    {"automaticLossScalingSettings.gradientTensorTrackingMethod", Kind::integer},
    {"accumulateOuterFragmentSettings.schedule", Kind::integer},
    {"patterns_level", Kind::integer},
    {"outlineSequenceBreakCost", Kind::number},
    {"outlineThreshold", Kind::number},
    {"timeLimitScheduler", Kind::number},
    {"automaticLossScalingSettings.thresholdUpperCountProportion", Kind::number},
    {"automaticLossScalingSettings.binEdgeLocation", Kind::number},
    {"cachePath", Kind::text},
    {"partialsTypeMatMuls", Kind::text},
    {"customCodeletCompileFlags", Kind::text},
    {"serializedPoprithmsShiftGraphsDir", Kind::text},
    {"kahnTieBreaker", Kind::text},
    {"saveInitializersToFile", Kind::text},
    {"logDir", Kind::text},
    {"dotChecks", Kind::items},
    {"hardwareInstrumentations", Kind::items},
    {"customCodelets", Kind::items},
    {"accumulateOuterFragmentSettings.excludedVirtualGraphs", Kind::items},
    {"updatableNamedBuffers", Kind::items},
    {"engineOptions", Kind::dict},
    {"reportOptions", Kind::dict},
    {"convolutionOptions", Kind::dict},
    {"matmulOptions", Kind::dict},
    {"lstmOptions", Kind::dict},
    {"gclOptions", Kind::dict},
    {"patterns", Kind::dict},
};

std::string_view words(Kind kind) {
  switch (kind) {
    case Kind::flag:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::number:
      return "float";
    case Kind::text:
      return "str";
    case Kind::items:
      return "list or set";
    case Kind::dict:
      return "dict";
  }
  return "";
}

bool fits(Kind kind, const OptionValue& value) {
  switch (kind) {
    case Kind::flag:
      return value.is<bool>();
    case Kind::integer:
      return value.is<int64_t>();
    case Kind::number:
      return value.is<double>() || value.is<int64_t>();
    case Kind::text:
      return value.is<std::string>();
    case Kind::items:
      return value.is<OptionList>() || value.is<OptionSet>();
    case Kind::dict:
      return value.is<OptionDict>();
  }
  return false;
}

const Key* find_key(std::string_view name) {
  for (const Key& key : keys) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

// The first thing inside that is no value at all.
const OptionUnknown* unknown_in(const OptionValue& value) {
  if (value.is<OptionUnknown>()) return &value.as<OptionUnknown>();
  const auto first_of = [](const std::vector<OptionValue>& items) -> const OptionUnknown* {
    for (const OptionValue& item : items) {
      if (const OptionUnknown* unknown = unknown_in(item)) return unknown;
    }
    return nullptr;
  };
  if (value.is<OptionList>()) return first_of(value.as<OptionList>().items);
  if (value.is<OptionSet>()) return first_of(value.as<OptionSet>().items);
  if (!value.is<OptionDict>()) return nullptr;
  for (const OptionEntry& entry : value.as<OptionDict>().entries) {
    if (const OptionUnknown* unknown = unknown_in(entry.value)) return unknown;
  }
  return nullptr;
}

}  // namespace

PopartOptions::PopartOptions(std::shared_ptr<bool> frozen) : frozen_(std::move(frozen)) {
  options_.set("instrumentWithHardwareCycleCounter", false);
  options_.set("rearrangeAnchorsOnHost", false);
}

void PopartOptions::check_changeable() const {
  tessera::check(!*frozen_, ErrorKind::attribute,
                 "Can't modify frozen Options: they were given to a model or a data loader; change "
                 "a clone() of them instead");
}

PopartOptions& PopartOptions::set(std::string_view key, OptionValue value) {
  check_changeable();
  if (value.is<OptionEnum>()) value = value.as<OptionEnum>().number;
  options_.set(std::string(key), std::move(value));
  return *this;
}

PopartOptions& PopartOptions::setEngineOptions(const std::map<std::string, std::string>& options) {
  OptionDict dict;
  for (const auto& [key, value] : options) dict.set(key, value);
  return set("engineOptions", std::move(dict));
}

PopartOptions& PopartOptions::setPatterns(const std::map<std::string, bool>& patterns,
                                          int64_t level) {
  tessera::check(level >= 0 && level <= 3, ErrorKind::assertion,
                 "the level of setPatterns must be 0 (none), 1 (minimal), 2 (default) or 3 (all), "
                 "got {}",
                 level);
  OptionDict dict;
  for (const auto& [name, enabled] : patterns) dict.set(name, enabled);
  set("patterns_level", level);
  return set("patterns", std::move(dict));
}

const OptionValue* PopartOptions::find(std::string_view key) const {
  return options_.find(std::string(key));
}

void PopartOptions::check() const {
  for (const auto& [key, value] : options_.entries) {
    check_popart_option(key.as<std::string>(), value);
    log_option(key.as<std::string>(), value);
  }
}

void PopartOptions::copy_values(const PopartOptions& other) {
  check_changeable();
  options_ = other.options_;
}

std::string PopartOptions::to_string() const {
  std::string text;
  for (const auto& [key, value] : options_.entries) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{}={}", tessera::to_string(key), tessera::to_string(value));
  }
  return fmt::format("_PopartOptions({})", text);
}

void check_popart_option(std::string_view key, const OptionValue& value) {
  if (const OptionUnknown* unknown = unknown_in(value)) {
    fail(ErrorKind::user,
         "Unknown value type {} for option {}: it must be a bool, int, float, "
         "str, list, set or dict",
         unknown->type, key);
  }
  const Key* known = find_key(key);
  check(known, "Unknown {} option {}: PopART has no setting of that name", type_name(value), key);
  check(fits(known->kind, value), "Unknown {} option {}: it takes a {}, but was set to {}",
        type_name(value), key, words(known->kind), to_string(value));
  if (key == "logDir") warn_about_option("_Popart.set(\"logDir\") is ignored: use Options.logDir");
}

std::vector<std::pair<std::string_view, std::string_view>> popart_option_keys() {
  std::vector<std::pair<std::string_view, std::string_view>> all;
  for (const Key& key : keys) all.emplace_back(key.name, words(key.kind));
  return all;
}

void log_option(std::string_view key, const OptionValue& value) {
  if (log_level() > LogLevel::debug) return;
  const auto each = [&](const std::vector<OptionValue>& items) {
    for (const OptionValue& item : items) {
      log(LogLevel::debug, "poptorch.Options added {} to {}", to_string(item), key);
    }
  };
  if (value.is<OptionList>()) return each(value.as<OptionList>().items);
  if (value.is<OptionSet>()) return each(value.as<OptionSet>().items);
  if (!value.is<OptionDict>()) {
    return log(LogLevel::debug, "poptorch.Options set {} to value {}", key, to_string(value));
  }
  for (const auto& [name, entry] : value.as<OptionDict>().entries) {
    log(LogLevel::debug, "poptorch.Options set {}[{}] to {}", key, to_string(name),
        to_string(entry));
  }
}

}  // namespace tessera
