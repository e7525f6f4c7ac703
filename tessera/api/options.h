// How a model is run: PopTorch's options in PopTorch's words. Setters return the object they belong
// to, so that they can be chained. Options that were given to a model or a data loader are frozen;
// clone() gives a copy that can be changed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tessera/runtime/session.h"

namespace tessera {

class TrainingOptions {
 public:
  explicit TrainingOptions(std::shared_ptr<const bool> frozen) : frozen_(std::move(frozen)) {}

  // Micro-batches per weight update.
  TrainingOptions& gradientAccumulation(int64_t micro_batches);
  int64_t gradient_accumulation() const { return gradient_accumulation_; }

 private:
  friend class Options;

  std::shared_ptr<const bool> frozen_;
  int64_t gradient_accumulation_ = 1;
};

class Options {
 public:
  Options();
  Options(const Options& other);  // an unfrozen copy
  Options& operator=(const Options& other);

  // Weight updates (training) or forward passes (inference) per call.
  Options& deviceIterations(int64_t iterations);
  // Data-parallel copies of the model. More than one is refused when a model is wrapped.
  Options& replicationFactor(int64_t replicas);
  // Fixes the program's random numbers; also seeds PyTorch, at once.
  Options& randomSeed(int64_t seed);
  // The same without seeding PyTorch: for options that come from another process.
  Options& restoreRandomSeed(int64_t seed);
  // Accepted: the program runs on the CPU either way.
  Options& useIpuModel(bool use);
  // Which micro-batches' outputs a call returns; `period` is the N of every_n.
  Options& outputMode(OutputMode mode, std::optional<int64_t> period = std::nullopt);
  Options& defaultOutputMode();  // the last one for training, all for inference
  Options& showCompilationProgressBar(bool show = true);
  // Leaves out algorithms that round more than the plain one does (Winograd's with tiles of 4x4).
  // TESSERA_PRECISION=precise or =fast says what holds where the program does not.
  Options& precise(bool precise = true);
  // Lets compiling time kernels where several could do the same work. Off by default: which kernel
  // wins, and with it the last bits of results, may then differ from one compilation to the next.
  Options& autotune(bool autotune = true);

  TrainingOptions& Training() { return training_; }
  const TrainingOptions& Training() const { return training_; }

  int64_t device_iterations() const { return device_iterations_; }
  int64_t replication_factor() const { return replication_factor_; }
  std::optional<int64_t> random_seed() const { return random_seed_; }
  std::optional<bool> use_ipu_model() const { return use_ipu_model_; }
  std::optional<OutputMode> output_mode() const { return output_mode_; }  // empty: the default
  int64_t output_return_period() const { return output_return_period_; }
  bool show_compilation_progress_bar() const { return show_compilation_progress_bar_; }
  std::optional<bool> precise_results() const { return precise_; }
  std::optional<bool> autotuned() const { return autotune_; }

  // Micro-batches in one call: what dimension 0 of every input is divided by.
  int64_t micro_batches() const;

  Options clone() const { return *this; }
  void freeze() const { *frozen_ = true; }
  bool frozen() const { return *frozen_; }

 private:
  void check_not_frozen() const;

  std::shared_ptr<bool> frozen_;
  TrainingOptions training_;
  int64_t device_iterations_ = 1;
  int64_t replication_factor_ = 1;
  std::optional<int64_t> random_seed_;
  std::optional<bool> use_ipu_model_;
  std::optional<OutputMode> output_mode_;
  int64_t output_return_period_ = 1;
  bool show_compilation_progress_bar_ = true;
  std::optional<bool> precise_, autotune_;
};

}  // namespace tessera
