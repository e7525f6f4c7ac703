#include "tessera/api/options.h"

#include <ATen/Context.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

int64_t at_least_one(const char* setter, int64_t value) {
  check(value >= 1, ErrorKind::value, "{} must be at least 1, got {}", setter, value);
  return value;
}

void check_changeable(bool frozen) {
  check(!frozen, ErrorKind::attribute,
        "Can't modify frozen Options: they were given to a model or a data loader; change a "
        "clone() of them instead");
}

}  // namespace

TrainingOptions& TrainingOptions::gradientAccumulation(int64_t micro_batches) {
  check_changeable(*frozen_);
  gradient_accumulation_ = at_least_one("gradientAccumulation", micro_batches);
  return *this;
}

Options::Options() : frozen_(std::make_shared<bool>(false)), training_(frozen_) {}

Options::Options(const Options& other) : Options() { *this = other; }

Options& Options::operator=(const Options& other) {
  if (this == &other) return *this;
  check_not_frozen();
  training_.gradient_accumulation_ = other.training_.gradient_accumulation_;
  device_iterations_ = other.device_iterations_;
  replication_factor_ = other.replication_factor_;
  random_seed_ = other.random_seed_;
  use_ipu_model_ = other.use_ipu_model_;
  output_mode_ = other.output_mode_;
  output_return_period_ = other.output_return_period_;
  show_compilation_progress_bar_ = other.show_compilation_progress_bar_;
  precise_ = other.precise_;
  autotune_ = other.autotune_;
  return *this;
}

void Options::check_not_frozen() const { check_changeable(*frozen_); }

Options& Options::deviceIterations(int64_t iterations) {
  check_not_frozen();
  device_iterations_ = at_least_one("deviceIterations", iterations);
  return *this;
}

Options& Options::replicationFactor(int64_t replicas) {
  check_not_frozen();
  replication_factor_ = at_least_one("replicationFactor", replicas);
  return *this;
}

Options& Options::randomSeed(int64_t seed) {
  restoreRandomSeed(seed);
  at::manual_seed(static_cast<uint64_t>(seed));
  return *this;
}

Options& Options::restoreRandomSeed(int64_t seed) {
  check_not_frozen();
  check(seed >= 0, ErrorKind::value, "randomSeed must not be negative, got {}", seed);
  random_seed_ = seed;
  return *this;
}

Options& Options::useIpuModel(bool use) {
  check_not_frozen();
  use_ipu_model_ = use;
  return *this;
}

Options& Options::outputMode(OutputMode mode, std::optional<int64_t> period) {
  check_not_frozen();
  if (mode == OutputMode::every_n) {
    check(period.value_or(0) >= 1, ErrorKind::assertion,
          "OutputMode.EveryN needs an output_return_period of at least 1");
  }
  output_mode_ = mode;
  output_return_period_ = period.value_or(1);
  return *this;
}

Options& Options::defaultOutputMode() {
  check_not_frozen();
  output_mode_.reset();
  return *this;
}

Options& Options::precise(bool precise) {
  check_not_frozen();
  precise_ = precise;
  return *this;
}

Options& Options::autotune(bool autotune) {
  check_not_frozen();
  autotune_ = autotune;
  return *this;
}

Options& Options::showCompilationProgressBar(bool show) {
  check_not_frozen();
  show_compilation_progress_bar_ = show;
  return *this;
}

int64_t Options::micro_batches() const {
  return device_iterations_ * replication_factor_ * training_.gradient_accumulation_;
}

}  // namespace tessera
