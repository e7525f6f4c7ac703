// Turns the ATen calls of one capture into a graph, one call at a time, without computing them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/ops/builder.h"
#include "tessera/torch/aten_call.h"
#include "tessera/torch/fake_storage.h"
#include "tessera/torch/multi_conv.h"
#include "tessera/torch/provenance.h"
#include "tessera/torch/storage_versions.h"
#include "tessera/torch/unsupported.h"

namespace tessera {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// A state of the graph and the user's tensor it stands for.
struct BoundState {
  std::string name;
  StateKind kind = StateKind::parameter;
  at::Tensor host;
};

// What capture asks the language that the model is written in.
struct FrontEnd {
  std::function<Origin()> locate;  // where the user's code is now
  bool guesses_modules = false;    // the weights that an operator uses know better
  // A shape rule of PyTorch failed, which is no error here; one in Python leaves its error set.
  std::function<void()> forget_error = [] {};
  // Throws, in the place of an exception of ours that is to pass through PyTorch and the model's
  // code, one that arrives unchanged; by itself it does. And the exception that such a one stands
  // for; null for any other.
  std::function<void(std::exception_ptr)> throw_wrapped = &std::rethrow_exception;
  std::function<std::exception_ptr(std::exception_ptr)> unwrapped = [](std::exception_ptr) {
    return std::exception_ptr();
  };
};

class Recorder {
 public:
  Recorder(std::vector<NamedTensor> parameters, std::vector<NamedTensor> buffers,
           FrontEnd front_end);

  // A stand-in without memory for one micro-batch of an input.
  at::Tensor add_input(const std::string& name, const at::Tensor& example);

  // Ones that are a value of the program and no constant: a pass may replace them.
  at::Tensor ones_like(const at::Tensor& tensor);

  // Handles a call: arguments are taken off the stack, results pushed. Runs below autograd.
  void record(const c10::OperatorHandle& op, torch::jit::Stack& stack);

  // The tensor's value, for outputs and gradients.
  ValueId read(const at::Tensor& tensor);

  // The tensor's values for the example inputs, where they follow from nothing else.
  std::optional<at::Tensor> example_of(const at::Tensor& tensor);

  // The program computes the tensor also where nobody reads it: what its size says is only true
  // where that does not fail.
  void keep(const at::Tensor& tensor) { kept_.push_back(read(tensor)); }
  const std::vector<ValueId>& kept() const { return kept_; }

  // True for a tensor whose values are there: a constant, not something the program computes.
  bool is_constant(const at::Tensor& tensor) const;

  // The same for somebody who looks at the values if so: what is done then is part of the program.
  bool may_look_at(const at::Tensor& tensor);

  // True for a constant that forward made itself; other constants were there before.
  bool made_in_forward(const at::Tensor& tensor) const;

  // Which of the program's values the tensor holds now. Error for one that is no such value.
  int64_t value_number(const at::Tensor& tensor);

  // Error that names all operators that no program can have, where forward used any; and for a
  // buffer that forward decided by and changed.
  void check_supported() const {
    unsupported_.check_none();
    check_switches();
  }

  // Forward asked for a value that is only known when the program runs.
  [[noreturn]] void refuse_value(const std::string& asked_by);

  void mark_loss(const at::Tensor& loss);
  struct Loss {
    at::Tensor tensor;
    ValueId value;
    Origin origin;
    std::optional<int64_t> batch = {};  // a sum that is about to be divided by this
  };
  void expect_batch_mean(int64_t batch) { losses_.back().batch = batch; }
  bool makes_batch_mean(const at::Tensor& dividend, const at::Scalar& divisor) const;
  const std::vector<Loss>& losses() const { return losses_; }
  // Those after the first `count` were no losses of this model.
  void keep_losses(size_t count) { losses_.resize(count); }

  // The convolutions in between belong together; see MultiConvs.
  void begin_multi_conv() { multi_convs_.begin(); }
  int64_t end_multi_conv(const std::vector<DType>& partials) {
    return multi_convs_.end(graph_, partials);
  }
  void forget_multi_conv() { multi_convs_.forget(); }

  // What forward has written over the content that the tensor had before; invalid where nothing.
  ValueId written_value(const at::Tensor& tensor);

  // A weight of another model, whose values of this moment are constants of the program; nothing
  // happens where it is this model's own, too.
  void borrow(const NamedTensor& weight);
  const std::vector<NamedTensor>& borrowed() const { return borrowed_; }

  void begin_backward() { provenance_.begin_backward(); }

  // Takes what is left over: changed states, the graph, the states' host tensors.
  void finish_states();
  Graph& graph() { return graph_; }
  const std::vector<BoundState>& bound_states() const { return bound_states_; }

  const FrontEnd& front_end() const { return front_end_; }

  void seal() { fakes_.seal(); }

 private:
  void resize_out(const at::Tensor& out, const Shape& shape) const;
  bool record_row(const AtenCall& call, const MatchedCall& matched, torch::jit::Stack& stack);
  void record_host_call(const c10::OperatorHandle& op, const AtenCall& call,
                        torch::jit::Stack& stack);
  at::Tensor fresh_like(const at::Tensor& result, ValueId value);
  bool record_data_movement(const AtenCall& call, torch::jit::Stack& stack);
  at::Tensor clone(const AtenCall& call, const at::Tensor& self);
  void fill(const at::Tensor& self, const c10::Scalar& number);
  void answer(const AtenCall& call, torch::jit::Stack& stack);
  bool can_run_now(const AtenCall& call) const;
  bool rounds_to_bfloat16(const AtenCall& call) const;
  void run_now(const c10::OperatorHandle& op, const AtenCall& call, torch::jit::Stack& stack);
  void record_unsupported(const AtenCall& call, torch::jit::Stack& stack);
  StorageVersions::Found outside_value(const at::Tensor& tensor);
  ValueId constant_value(const at::Tensor& whole);
  ValueId operand_value(const CallOperand& operand, std::optional<at::ScalarType> promoted);
  void write(const at::Tensor& tensor, ValueId value);
  void place_by_weights(const MatchedCall& matched);
  void note_convolution(ValueId result);
  at::Tensor fresh(const Geometry& geometry, at::ScalarType type, ValueId value);

  struct Named {
    NamedTensor tensor;
    StateKind kind;
  };
  const Named* find_named(const at::Tensor& tensor) const;
  static bool is_switch(const Named& named);
  void note_switches(const std::vector<at::Tensor>& read);
  void check_switches() const;
  ValueId add_state(const Named& named);

  FrontEnd front_end_;
  std::vector<Named> named_;
  std::unordered_map<const c10::StorageImpl*, size_t> named_by_storage_;  // the first of tied ones
  std::unordered_map<const c10::StorageImpl*, c10::Storage> made_in_forward_;  // constants
  Graph graph_;
  Builder builder_;
  Provenance provenance_;
  FakeStorages fakes_;
  StorageVersions versions_;
  Unsupported unsupported_;
  MultiConvs multi_convs_;
  std::vector<BoundState> bound_states_;
  std::unordered_map<const c10::StorageImpl*, Origin> switches_;  // that were read, and where
  std::vector<NamedTensor> borrowed_;
  std::vector<at::Tensor> examples_;  // of the inputs
  std::vector<ValueId> kept_;
  std::vector<Loss> losses_;
};

}  // namespace tessera
