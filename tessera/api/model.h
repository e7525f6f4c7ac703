// The C++ front end: wrap a LibTorch module once, call it like the module.
//
//   auto training = tessera::trainingModel(model, options, tessera::optim::SGD(...));
//   auto [output, loss] = training(images, labels);   // forward, loss, backward, update
//   auto inference = tessera::inferenceModel(model);  // sees the trained weights
//
// `model` is a module holder or a shared pointer to a module with a forward() over tensors that
// returns a tensor, or tensors in tuples, vectors, maps and optionals (structure.h). The weights
// live on the device while training: module() brings them back, as do detachFromDevice() and
// destroy().
#pragma once

#include <torch/nn/module.h>

#include <any>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/api/executor/compile_hooks.h"
#include "tessera/api/executor/executor.h"
#include "tessera/api/hardware.h"
#include "tessera/api/optimizer/optim.h"
#include "tessera/api/structure.h"
#include "tessera/base/error.h"

namespace tessera {
namespace detail {

template <typename Forward, size_t... I>
auto apply_list(const Forward& forward, const std::vector<at::Tensor>& list,
                std::index_sequence<I...>) {
  return forward(list[I]...);
}

template <typename Dict>
std::vector<NamedTensor> named_tensors(const Dict& dict) {
  std::vector<NamedTensor> named;
  for (const auto& item : dict) named.push_back({item.key(), item.value()});
  return named;
}

std::vector<ModuleClass> module_classes(const torch::nn::Module& module);

// Says that a module is being trained, while it lives. Error where somebody trains it already.
class TrainingClaim {
 public:
  explicit TrainingClaim(const torch::nn::Module* module);
  ~TrainingClaim();
  TrainingClaim(const TrainingClaim&) = delete;
  TrainingClaim& operator=(const TrainingClaim&) = delete;

 private:
  const torch::nn::Module* module_;
};

}  // namespace detail

template <typename Module>
class Model {
 public:
  Model(Purpose purpose, Module module, const Options& options,
        std::optional<Optimizer> optimizer = std::nullopt)
      : module_(std::move(module)),
        forward_(std::make_shared<Forward>()),
        captured_(std::make_shared<Captured>()),
        claim_(purpose == Purpose::training ? std::make_unique<detail::TrainingClaim>(&*module_)
                                            : nullptr),
        executor_(std::make_unique<Executor>(purpose, access(), options, std::move(optimizer))) {}

  // The whole step for all micro-batches in the inputs; what forward returns.
  template <typename... Tensors>
  auto operator()(const Tensors&... inputs) {
    using Result = decltype(module_->forward(inputs...));
    auto captured = captured_;
    std::vector<at::Tensor> results;
    if (is_capturing()) {  // another model, of whose program this call becomes a part
      captured = std::make_shared<Captured>();
      results =
          executor_->run_inside(named({inputs...}), forward_into<Result, Tensors...>(captured));
    } else {
      set_forward<Result, Tensors...>();
      results = executor_->run(named({inputs...}));
    }
    if constexpr (!std::is_void_v<Result>) {
      const auto* like = std::any_cast<Result>(&captured->result);
      check(like, "the model was compiled for a forward that returns another type; call destroy()");
      auto next = results.cbegin();
      return detail::Structure<Result>::rebuild(*like, next);
    }
  }

  template <typename... Tensors>
  void compile(const Tensors&... inputs) {
    set_forward<decltype(module_->forward(inputs...)), Tensors...>();
    executor_->compile(named({inputs...}));
  }

  // Gives each group of `shards` replicas a value of its own for a parameter of the module itself,
  // of which dimension 0 counts the groups. Before compiling.
  void replicaGrouping(const std::string& parameter, CommGroupType type, int64_t shards,
                       VariableRetrievalMode mode) {
    executor_->replicaGrouping(parameter, type, shards, mode);
  }

  // Writes the compiled program and the values of its states to a file; see Executor::save().
  void save(const std::string& path, bool save_rng_state = true) {
    executor_->save(path, {.rng_state = save_rng_state});
  }

  template <typename... Tensors>
  void compileAndExport(const std::string& path, const Tensors&... inputs) {
    compile(inputs...);
    save(path);
  }

  // Takes the program of such a file in place of compiling; the weights are the module's. Error
  // where the file has another program. forward() must not be a template, or have overloads.
  void loadExecutable(const std::string& path) {
    if (!isCompiled()) set_forward_of(&ModuleType::forward);
    executor_->loadExecutable(path);
  }

  // The user's module, with its newest weights.
  Module& module() {
    executor_->copyWeightsToHostIfNeeded();
    return module_;
  }

  bool isCompiled() const { return executor_->isCompiled(); }
  bool isAttachedToDevice() const { return executor_->isAttachedToDevice(); }
  void attachToDevice() { executor_->attachToDevice(); }
  void detachFromDevice() { executor_->detachFromDevice(); }
  // Frees the program; the module keeps its weights and may be wrapped for training anew. A later
  // call compiles again.
  void destroy() {
    if (!isCompiled()) return;
    executor_->destroy();
    claim_.reset();
  }
  void copyWeightsToHost() { executor_->copyWeightsToHost(); }
  bool copyWeightsToHostIfNeeded() { return executor_->copyWeightsToHostIfNeeded(); }
  void copyWeightsToDevice() { executor_->copyWeightsToDevice(); }
  void copyNamedBuffersToDevice() { executor_->copyNamedBuffersToDevice(); }
  std::optional<std::vector<int64_t>> rng_state() const { return executor_->rng_state(); }
  void set_rng_state(const std::optional<std::vector<int64_t>>& state) {
    executor_->set_rng_state(state);
  }
  std::vector<std::string> getTensorNames() const { return executor_->getTensorNames(); }
  at::Tensor getAnchoredTensor(const std::string& short_name) const {
    return executor_->getAnchoredTensor(short_name);
  }
  PerfCounters getPerfCounters() const { return executor_->getPerfCounters(); }
  Latency getLatency() const { return executor_->getLatency(); }
  Latency getHostIpuLatency() const { return executor_->getHostIpuLatency(); }
  Latency getComputeLatency() const { return executor_->getComputeLatency(); }
  Latency getIpuHostLatency() const { return executor_->getIpuHostLatency(); }
  int64_t cycleCount() const { return executor_->cycleCount(); }
  std::chrono::duration<double> compilationTime() const { return executor_->compilationTime(); }
  void setOptimizer(Optimizer optimizer) { executor_->setOptimizer(std::move(optimizer)); }
  const Options& options() const { return executor_->options(); }
  Executor& executor() { return *executor_; }

 private:
  // What forward returned when it was captured.
  struct Captured {
    std::any result;
    std::string structure;  // see StepSignature
  };

  using ModuleType = std::remove_reference_t<decltype(*std::declval<Module&>())>;

  template <typename Result, typename Type, typename... Tensors>
  void set_forward_of(Result (Type::*)(Tensors...)) {
    set_forward<Result, std::remove_cvref_t<Tensors>...>();
  }
  template <typename Result, typename Type, typename... Tensors>
  void set_forward_of(Result (Type::*)(Tensors...) const) {
    set_forward<Result, std::remove_cvref_t<Tensors>...>();
  }

  ModelAccess access() {
    return {
        .name = module_->name(),
        .parameters = [m = module_] { return detail::named_tensors(m->named_parameters()); },
        .buffers = [m = module_] { return detail::named_tensors(m->named_buffers()); },
        .forward = [f = forward_](const std::vector<at::Tensor>& inputs) { return (*f)(inputs); },
        .modules = [m = module_] { return detail::module_classes(*m); },
        .output_structure = [c = captured_] { return c->structure; },
    };
  }

  template <typename Result, typename... Tensors>
  void set_forward() {
    static_assert((std::is_convertible_v<Tensors, at::Tensor> && ...),
                  "the inputs of a wrapped model are tensors");
    if (!isCompiled()) *forward_ = forward_into<Result, Tensors...>(captured_);
  }

  // Leaves what forward returned in `captured`.
  template <typename Result, typename... Tensors>
  Forward forward_into(const std::shared_ptr<Captured>& captured) {
    return [m = module_, captured](const std::vector<at::Tensor>& inputs) mutable {
      const auto call = [&m](const auto&... tensors) { return m->forward(tensors...); };
      constexpr std::index_sequence_for<Tensors...> indices;
      detail::TensorList outputs;
      if constexpr (std::is_void_v<Result>) {
        detail::apply_list(call, inputs, indices);
      } else {
        Result result = detail::apply_list(call, inputs, indices);
        detail::Structure<Result>::flatten(result, outputs);
        captured->structure = detail::Structure<Result>::describe(result);
        captured->result = std::move(result);
      }
      return outputs;
    };
  }

  static std::vector<NamedTensor> named(const std::vector<at::Tensor>& tensors) {
    std::vector<NamedTensor> inputs;
    for (const at::Tensor& tensor : tensors) {
      inputs.push_back({std::to_string(inputs.size()), tensor});
    }
    return inputs;
  }

  Module module_;
  std::shared_ptr<Forward> forward_;
  std::shared_ptr<Captured> captured_;
  std::unique_ptr<detail::TrainingClaim> claim_;
  std::unique_ptr<Executor> executor_;
};

// Options that were given to a model are frozen from then on. Without an optimiser, training uses
// SGD with a learning rate of 0.01.
template <typename Module>
Model<Module> trainingModel(Module module, const Options& options = {},
                            std::optional<Optimizer> optimizer = std::nullopt) {
  options.freeze();
  return Model<Module>(Purpose::training, std::move(module), options, std::move(optimizer));
}

template <typename Module>
Model<Module> inferenceModel(Module module, const Options& options = {}) {
  options.freeze();
  return Model<Module>(Purpose::inference, std::move(module), options);
}

// A model may stand for its module.
template <typename Module>
Model<Module> trainingModel(Model<Module>& model, const Options& options = {},
                            std::optional<Optimizer> optimizer = std::nullopt) {
  return trainingModel(model.module(), options, std::move(optimizer));
}

template <typename Module>
Model<Module> inferenceModel(Model<Module>& model, const Options& options = {}) {
  return inferenceModel(model.module(), options);
}

// True while forward is being captured for a program; false when it runs as usual.
inline bool isRunningOnIpu() { return is_capturing(); }

enum class LossReduction { sum = 0, mean = 1, none = 2 };

// Reduces `x` and marks the result as the loss to train on. Outside a wrapped model it only
// reduces.
at::Tensor identity_loss(const at::Tensor& x, LossReduction reduction);

// Convolutions of a forward that belong together, and what is said about them, for their gradients
// too. They run as they always do.
class MultiConv {
 public:
  // What sums of convolutions of halves are kept in, torch::kFloat or torch::kHalf: one for all, or
  // one for each. It goes before what the options say.
  MultiConv& partialsTypes(std::vector<at::ScalarType> types);

  // Runs `work`, which computes them. Error inside another one, or where there is no convolution
  // or another number of them; outside a wrapped model it only runs.
  void run(const std::function<void()>& work) const;

 private:
  std::vector<at::ScalarType> types_;
};

}  // namespace tessera
