#include "tessera/api/options/options.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tessera/base/error.h"

namespace tessera {
namespace {

// The kind of the Error that a setter ends in.
template <typename Function>
ErrorKind kind_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "no error";
  return ErrorKind::runtime;
}

template <typename Function>
std::string message_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.message();
  }
  return "no error";
}

class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~ScopedVariable() { unsetenv(name_); }

 private:
  const char* name_;
};

// spec: 2.1 fluent
TEST(Options, SettersReturnWhatTheyBelongTo) {
  Options options;
  EXPECT_EQ(&options.deviceIterations(4).replicationFactor(2).logDir("logs"), &options);
  EXPECT_EQ(&options.Training().gradientAccumulation(3), &options.Training());
  EXPECT_EQ(&options.Popart().set("enableOutlining", true), &options.Popart());
  EXPECT_EQ(options.device_iterations(), 4);
  EXPECT_EQ(options.log_dir(), "logs");
  EXPECT_EQ(options.micro_batches(), 4 * 2 * 3);
}

// spec: 2.1 reading values
TEST(Options, Defaults) {
  const Options options;
  EXPECT_EQ(options.device_iterations(), 1);
  EXPECT_EQ(options.replication_factor(), 1);
  EXPECT_TRUE(options.broadcast_buffers());
  EXPECT_TRUE(options.defaultOutputMode());
  EXPECT_FALSE(options.output_mode());
  EXPECT_EQ(options.connection_type(), ConnectionType::always);
  EXPECT_EQ(options.max_repeat_logs(), 4);
  EXPECT_FALSE(options.random_seed());
  EXPECT_FALSE(options.ipu_version());
  EXPECT_FALSE(options.use_ipu_model());
  EXPECT_FALSE(options.model_name());
  EXPECT_FALSE(options.updatable_named_buffers());
  EXPECT_FALSE(options.synthetic_data());
  EXPECT_FALSE(options.log_cycle_count());
  EXPECT_FALSE(options.profile_dir());
  EXPECT_TRUE(options.show_compilation_progress_bar());
  EXPECT_TRUE(options.module_namescope());
  EXPECT_EQ(options.source_location_excludes().size(), 3u);
  EXPECT_EQ(options.Training().accumulation_and_replication_reduction_type(), ReductionType::mean);
  EXPECT_EQ(options.Training().mean_accumulation_and_replication_reduction_strategy(),
            MeanReductionStrategy::post);
  EXPECT_FALSE(options.Training().automatic_loss_scaling());
  EXPECT_FALSE(options.Precision().floating_point_exceptions());
  EXPECT_FALSE(options.Precision().stochastic_rounding());
  EXPECT_EQ(options.Precision().partials_type(), at::kFloat);
}

// spec: 2.2 deviceIterations
// spec: 2.3 accumulationAndReplicationReductionType
TEST(Options, RefusesWhatNoProgramCanMean) {
  Options options;
  EXPECT_EQ(kind_of([&] { options.deviceIterations(0); }), ErrorKind::value);
  EXPECT_EQ(kind_of([&] { options.outputMode(OutputMode::every_n); }), ErrorKind::assertion);
  EXPECT_EQ(kind_of([&] { options.inputReplicaGrouping(2, CommGroupType::consecutive); }),
            ErrorKind::value);
  EXPECT_EQ(kind_of([&] {
              options.setAvailableMemoryProportion({{"0", 0.5}});
            }),
            ErrorKind::assertion);
  EXPECT_EQ(kind_of([&] { options.useOfflineIpuTarget(3); }), ErrorKind::value);
  EXPECT_EQ(kind_of([&] {
              options.Training().accumulationAndReplicationReductionType(ReductionType::none);
            }),
            ErrorKind::value);
  EXPECT_EQ(kind_of([&] { options.Precision().setPartialsType(at::kDouble); }), ErrorKind::value);
  EXPECT_EQ(kind_of([&] { options.TensorLocations().numIOTiles(33); }), ErrorKind::assertion);
  EXPECT_EQ(kind_of([&] { options.Jit().traceModel(true); }), ErrorKind::value);
  EXPECT_EQ(options, Options());
}

// spec: 2.1 type strict
TEST(Options, ByNameIsStrict) {
  Options options;
  options.set("replication_factor", 4);
  EXPECT_EQ(options.replication_factor(), 4);
  EXPECT_EQ(message_of([&] { options.set("replication_factor", "4"); }),
            "replication_factor must be an int, not a str (4)");
  EXPECT_EQ(kind_of([&] { options.set("output_mode", 2); }), ErrorKind::assertion);
  EXPECT_EQ(kind_of([&] { options.set("replications", 2); }), ErrorKind::assertion);
  EXPECT_EQ(kind_of([&] { (void)options.get("replications"); }), ErrorKind::attribute);
  EXPECT_EQ(kind_of([&] { (void)options.get("random_seed"); }), ErrorKind::attribute);
  EXPECT_FALSE(options.exists("random_seed"));
}

// spec: 2.1 freezing
TEST(Options, FrozenOptionsTakeAnchorsOnly) {
  Options options;
  options.freeze();
  EXPECT_EQ(kind_of([&] { options.deviceIterations(2); }), ErrorKind::attribute);
  EXPECT_EQ(kind_of([&] { options.Training().gradientAccumulation(2); }), ErrorKind::attribute);
  EXPECT_EQ(kind_of([&] { options.Precision().enableStochasticRounding(true); }),
            ErrorKind::attribute);
  EXPECT_EQ(kind_of([&] { options.Popart().set("enableOutlining", true); }), ErrorKind::attribute);
  EXPECT_TRUE(
      message_of([&] { options.enableProfiling(); }).starts_with("Can't modify frozen Options"));
  options.anchorTensor("grad", "Gradient___fc.bias", OutputMode::every_n, 2);
  const auto anchors = options.anchored_tensors();
  ASSERT_EQ(anchors.count("grad"), 1u);
  EXPECT_EQ(anchors.at("grad").long_name, "Gradient___fc.bias");
  EXPECT_EQ(anchors.at("grad").mode, OutputMode::every_n);
  EXPECT_EQ(anchors.at("grad").period, 2);
}

// spec: 2.1 clone
TEST(Options, ClonesAreWholeAndUnfrozen) {
  Options options;
  options.deviceIterations(3).enableSyntheticData(true).randomSeed(7);
  options.Training().gradientAccumulation(4);
  options.Distributed().configureProcessId(1, 2);
  options.TensorLocations().setWeightLocation(TensorLocationSettings().useOnChipStorage(false));
  options.freeze();
  Options copied = options.clone();
  EXPECT_EQ(copied, options);
  EXPECT_EQ(copied.to_string(), options.to_string());
  copied.Training().gradientAccumulation(1);
  EXPECT_NE(copied, options);
  EXPECT_EQ(options.Training().gradient_accumulation(), 4);
}

// spec: 2.2 randomSeed
TEST(Options, OnlyTheSetterSeedsPyTorch) {
  Options options;
  options.randomSeed(5);
  const at::Tensor drawn = at::rand({3});
  at::manual_seed(5);
  EXPECT_TRUE(at::equal(drawn, at::rand({3})));
  const at::Tensor next = at::rand({3});
  at::manual_seed(5);
  (void)at::rand({3});
  const Options copied = options;
  EXPECT_TRUE(at::equal(next, at::rand({3})));
  EXPECT_EQ(copied.random_seed(), 5);
}

// spec: 2.1 from_json
TEST(Options, FromJson) {
  Options options;
  options.from_json(R"({
    "replicationFactor": 4,
    "inputReplicaGrouping": [2, "CommGroupType.Orthogonal"],
    "Training.gradientAccumulation": 3,
    "outputMode": ["OutputMode.EveryN", 2],
    "connectionType": "ConnectionType.OnDemand",
    "maxRepeatLogs": null,
    "autoRoundNumIPUs": [],
    "setAvailableMemoryProportion": {"IPU0": 0.5, "IPU1": 1},
    "Precision.setPartialsType": "torch.half",
    "_Popart.set": ["saveInitializersToFile", "my_file.onnx"],
    "Popart.setPatterns": [{"PadSum": false}, 3]
  })");
  Options expected;
  expected.replicationFactor(4).inputReplicaGrouping(2, CommGroupType::orthogonal);
  expected.Training().gradientAccumulation(3);
  expected.outputMode(OutputMode::every_n, 2).connectionType(ConnectionType::on_demand);
  expected.maxRepeatLogs(std::nullopt).autoRoundNumIPUs();
  expected.setAvailableMemoryProportion({{"IPU0", 0.5}, {"IPU1", 1.0}});
  expected.Precision().setPartialsType(at::kHalf);
  expected.Popart()
      .set("saveInitializersToFile", "my_file.onnx")
      .setPatterns({{"PadSum", false}}, 3);
  EXPECT_EQ(options, expected);
  EXPECT_EQ(options.to_string(), expected.to_string());
}

// spec: 2.1 from_json
TEST(Options, FromJsonRefuses) {
  const auto kind = [](const char* json) { return kind_of([&] { Options().from_json(json); }); };
  EXPECT_EQ(kind("{"), ErrorKind::value);
  EXPECT_EQ(kind("[1]"), ErrorKind::value);
  EXPECT_EQ(kind(R"({"deviceIteration": 1})"), ErrorKind::attribute);
  EXPECT_EQ(kind(R"({"deviceIterations": "2"})"), ErrorKind::assertion);
  EXPECT_EQ(kind(R"({"deviceIterations": [1, 2]})"), ErrorKind::type);
  EXPECT_EQ(kind(R"({"deviceIterations": 0})"), ErrorKind::value);
  EXPECT_EQ(kind(R"({"outputMode": "OutputMode.Most"})"), ErrorKind::assertion);
}

// spec: 7 POPTORCH_DEFAULT_OPTIONS
TEST(Options, CopiesDoNotAskTheEnvironment) {
  const Options before;
  const ScopedVariable defaults("POPTORCH_DEFAULT_OPTIONS", R"({"deviceIterations": 5})");
  EXPECT_EQ(Options().device_iterations(), 5);
  EXPECT_EQ(before.clone().device_iterations(), 1);
  EXPECT_EQ(Options::blank().device_iterations(), 1);
}

// spec: 2.6 _Popart.set unknown key, 2.6 _Popart.set wrong kind
TEST(PopartOptions, KeysAreCheckedAtCompile) {
  Options options;
  options.Popart().set("autoRecomputation", 1).set("outlineThreshold", 10.0);
  options.Popart().set("enableOutlinings", true);
  EXPECT_EQ(kind_of([&] { options.check_for_compile(); }), ErrorKind::user);
  EXPECT_TRUE(message_of([&] {
                options.Popart().check();
              }).starts_with("Unknown bool option enableOutlinings"));
  Options other;
  other.Popart().set("enableOutlining", 1);
  EXPECT_TRUE(message_of([&] {
                other.Popart().check();
              }).starts_with("Unknown int option enableOutlining"));
}

// spec: 2.3 setConvolutionDithering, 2.4 setPartialsType
TEST(PopartOptions, OptionsOfConvolutionsAreReplaced) {
  Options options;
  options.Precision().setPartialsType(at::kHalf);
  EXPECT_EQ(options.Precision().partials_type(), at::kHalf);
  EXPECT_EQ(options.Precision().convolution_partials_type(), at::kHalf);
  options.Training().setConvolutionDithering(true);
  const auto* convolutions = options.Popart().find("convolutionOptions");
  ASSERT_TRUE(convolutions);
  EXPECT_EQ(to_string(*convolutions), "{enableConvDithering: true}");
  EXPECT_EQ(options.Precision().partials_type(), at::kHalf);
  EXPECT_EQ(options.Precision().convolution_partials_type(), at::kFloat);
}

// spec: 2.4 setPartialsType
TEST(PopartOptions, NameTypesOfPartials) {
  Options options;
  options.Popart().set("partialsTypeMatMuls", "half");
  EXPECT_EQ(options.Precision().partials_type(), at::kHalf);
  EXPECT_EQ(options.Precision().convolution_partials_type(), at::kFloat);
  options.Popart().set("partialsTypeMatMuls", "flota");
  EXPECT_EQ(message_of([&] { options.Precision().partials_type(); }),
            "partialsTypeMatMuls must be 'half' or 'float', not flota");
}

// spec: 7 OMPI_COMM_WORLD
// spec: 8.3 offline-mode
TEST(Options, TheEnvironmentTakesProgramsOffline) {
  {
    const ScopedVariable offline("TESSERA_OFFLINE", "1");
    EXPECT_EQ(Options().connection_type(), ConnectionType::never);
  }
  {
    const ScopedVariable online("TESSERA_OFFLINE", "0");
    EXPECT_EQ(Options().connection_type(), ConnectionType::always);
  }
  const ScopedVariable wrong("TESSERA_OFFLINE", "yes");
  EXPECT_THROW(Options(), Error);
}

// spec: 7 POPTORCH_CACHE_DIR
TEST(Options, ReadsTheEnvironment) {
  const ScopedVariable size("OMPI_COMM_WORLD_SIZE", "8"), rank("OMPI_COMM_WORLD_RANK", "3");
  const ScopedVariable cache("POPTORCH_CACHE_DIR", "/tmp/cache");
  Options options;
  EXPECT_EQ(options.Distributed().processId(), 3);
  EXPECT_EQ(options.Distributed().numProcesses(), 8);
  EXPECT_EQ(options.executable_cache(), "/tmp/cache");
  options.Distributed().disable();
  options.enableExecutableCaching(std::nullopt);
  EXPECT_EQ(options.Distributed().numProcesses(), 1);
  EXPECT_FALSE(options.executable_cache());
}

// spec: 2.2 useOfflineIpuTarget
TEST(Options, OfflineTargetsContradictDevices) {
  Options options;
  options.useOfflineIpuTarget().useIpuId(0);
  EXPECT_EQ(options.connection_type(), ConnectionType::never);
  EXPECT_EQ(kind_of([&] { options.check_for_compile(); }), ErrorKind::user);
  Options model;
  model.useOfflineIpuTarget(21).useIpuModel(true);
  EXPECT_EQ(kind_of([&] { model.check_for_compile(); }), ErrorKind::user);
}

}  // namespace
}  // namespace tessera
