// The C++ front end: wrap a LibTorch module once, call it like the module.
//
//   auto training = tessera::trainingModel(model, options, tessera::optim::SGD(...));
//   auto [output, loss] = training(images, labels);   // forward, loss, backward, update
//   auto inference = tessera::inferenceModel(model);  // sees the trained weights
//
// `model` is a module holder or a shared pointer to a module with a forward() over tensors that
// returns a tensor, a tuple or pair of tensors, or a vector of tensors. The weights live on the
// device while training: module() brings them back, as do detachFromDevice() and destroy().
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/api/executor.h"
#include "tessera/api/optim.h"
#include "tessera/base/error.h"

namespace tessera {
namespace detail {

template <typename T>
struct Flat;  // how forward's result becomes a list of tensors and comes back from one

template <>
struct Flat<at::Tensor> {
  static std::vector<at::Tensor> list(const at::Tensor& value) { return {value}; }
  static at::Tensor rebuild(const std::vector<at::Tensor>& list) { return list.at(0); }
};

template <>
struct Flat<std::vector<at::Tensor>> {
  static std::vector<at::Tensor> list(const std::vector<at::Tensor>& value) { return value; }
  static std::vector<at::Tensor> rebuild(const std::vector<at::Tensor>& list) { return list; }
};

template <typename Tuple>
struct FlatTuple {
  static constexpr size_t size = std::tuple_size_v<Tuple>;
  template <size_t... I>
  static Tuple rebuild(const std::vector<at::Tensor>& list, std::index_sequence<I...>) {
    return Tuple{list.at(I)...};
  }
  static std::vector<at::Tensor> list(const Tuple& value) {
    return std::apply([](const auto&... item) { return std::vector<at::Tensor>{item...}; }, value);
  }
  static Tuple rebuild(const std::vector<at::Tensor>& list) {
    return rebuild(list, std::make_index_sequence<size>());
  }
};
template <typename... T>
struct Flat<std::tuple<T...>> : FlatTuple<std::tuple<T...>> {};
template <typename A, typename B>
struct Flat<std::pair<A, B>> : FlatTuple<std::pair<A, B>> {};

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

}  // namespace detail

template <typename Module>
class Model {
 public:
  Model(Purpose purpose, Module module, const Options& options,
        std::optional<Optimizer> optimizer = std::nullopt)
      : module_(std::move(module)),
        forward_(std::make_shared<Forward>()),
        executor_(std::make_unique<Executor>(purpose, access(), options, std::move(optimizer))) {}

  // The whole step for all micro-batches in the inputs; what forward returns.
  template <typename... Tensors>
  auto operator()(const Tensors&... inputs) {
    using Result = decltype(module_->forward(inputs...));
    set_forward<Result, Tensors...>();
    return detail::Flat<Result>::rebuild(executor_->run(named({inputs...})));
  }

  template <typename... Tensors>
  void compile(const Tensors&... inputs) {
    set_forward<decltype(module_->forward(inputs...)), Tensors...>();
    executor_->compile(named({inputs...}));
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
  void destroy() { executor_->destroy(); }
  void copyWeightsToHost() { executor_->copyWeightsToHost(); }
  void copyWeightsToDevice() { executor_->copyWeightsToDevice(); }
  void setOptimizer(Optimizer optimizer) { executor_->setOptimizer(std::move(optimizer)); }
  const Options& options() const { return executor_->options(); }
  Executor& executor() { return *executor_; }

 private:
  using Forward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

  ModelAccess access() {
    return {
        .parameters = [m = module_] { return detail::named_tensors(m->named_parameters()); },
        .buffers = [m = module_] { return detail::named_tensors(m->named_buffers()); },
        .forward = [f = forward_](const std::vector<at::Tensor>& inputs) { return (*f)(inputs); },
        .modules = [m = module_] { return detail::module_classes(*m); },
    };
  }

  template <typename Result, typename... Tensors>
  void set_forward() {
    static_assert((std::is_convertible_v<Tensors, at::Tensor> && ...),
                  "the inputs of a wrapped model are tensors");
    if (*forward_) return;
    *forward_ = [m = module_](const std::vector<at::Tensor>& inputs) mutable {
      const auto call = [&m](const auto&... tensors) { return m->forward(tensors...); };
      return detail::Flat<Result>::list(
          detail::apply_list(call, inputs, std::index_sequence_for<Tensors...>()));
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

// True while forward is being captured for a program; false when it runs as usual.
inline bool isRunningOnIpu() { return is_capturing(); }

enum class LossReduction { sum = 0, mean = 1, none = 2 };

// Reduces `x` and marks the result as the loss to train on. Outside a wrapped model it only
// reduces.
at::Tensor identity_loss(const at::Tensor& x, LossReduction reduction);

}  // namespace tessera
