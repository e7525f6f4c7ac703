#include "tessera/torch/recorder.h"

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cstring>

#include "tessera/torch/compat.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/example_values.h"
#include "tessera/torch/host_call.h"
#include "tessera/torch/narrowing.h"
#include "tessera/torch/refusals.h"
#include "tessera/torch/result_geometry.h"

namespace tessera {
namespace {

bool is_view(const c10::OperatorHandle& op, const AtenCall& call) {
  if (op.hasTag(at::Tag::inplace_view) || call.facts().aliases) return true;
  for (const auto& result : op.schema().returns()) {
    const auto* alias = result.alias_info();
    if (alias && !alias->isWrite()) return true;
  }
  return false;
}

void run_on(c10::DispatchKey key, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  op.redispatchBoxed(c10::DispatchKeySet(key), &stack);
}

// The tensor's window without its autograd history.
at::Tensor own_window(const at::Tensor& tensor) {
  return window_over(tensor.storage(), tensor.scalar_type(), geometry_of(tensor));
}

}  // namespace

Recorder::Recorder(std::vector<NamedTensor> parameters, std::vector<NamedTensor> buffers,
                   FrontEnd front_end)
    : front_end_(std::move(front_end)),
      builder_(graph_),
      provenance_(front_end_.locate),
      versions_(builder_, [this](const at::Tensor& tensor) { return outside_value(tensor); }) {
  const auto add = [&](std::vector<NamedTensor>& tensors, StateKind kind) {
    for (auto& tensor : tensors) {
      // The first name wins: tied parameters are one state.
      if (!tensor.tensor.has_storage()) continue;  // a sparse one
      named_by_storage_.emplace(tensor.tensor.storage().unsafeGetStorageImpl(), named_.size());
      named_.push_back({std::move(tensor), kind});
    }
  };
  add(parameters, StateKind::parameter);
  add(buffers, StateKind::buffer);
}

at::Tensor Recorder::add_input(const std::string& name, const at::Tensor& example) {
  const ErrorContext where("input '{}'", name);
  const ValueId value = graph_.add_input(InputKind::data, name, graph_type_of(example));
  examples_.push_back(example);
  return fresh(dense(shape_of(example)), example.scalar_type(), value);
}

at::Tensor Recorder::ones_like(const at::Tensor& tensor) {
  const TensorType type = graph_type_of(tensor);
  const ValueId ones =
      builder_.add("fill", {}, {{"shape", type.shape}, {"value", 1.0}, {"dtype", type.dtype}});
  return fresh(dense(type.shape), tensor.scalar_type(), ones);
}

at::Tensor Recorder::fresh(const Geometry& geometry, at::ScalarType type, ValueId value) {
  at::Tensor tensor = fakes_.make(geometry, type);
  versions_.define(tensor, value);
  return tensor;
}

const Recorder::Named* Recorder::find_named(const at::Tensor& tensor) const {
  const auto at = named_by_storage_.find(tensor.storage().unsafeGetStorageImpl());
  return at == named_by_storage_.end() ? nullptr : &named_[at->second];
}

// Modules written in C++ do not say when they run; the weights an operator uses tell whose it is.
// Python's do, and their word goes.
void Recorder::place_by_weights(const MatchedCall& matched) {
  if (!front_end_.guesses_modules && !builder_.origin().module.empty()) return;
  for (const CallOperand& operand : matched.operands) {
    const Named* weight = operand.tensor.defined() ? find_named(operand.tensor) : nullptr;
    if (!weight) continue;
    const std::string& name = weight->tensor.name;
    if (name.find('.') == std::string::npos) continue;
    Origin origin = builder_.origin();
    origin.module = name.substr(0, name.rfind('.'));
    provenance_.name_module(origin.module);
    builder_.set_place(std::move(origin), Phase::micro_batch);
    return;
  }
}

// A storage nobody told us of: a weight, or a tensor that was there before and is a constant.
StorageVersions::Found Recorder::outside_value(const at::Tensor& tensor) {
  const at::Tensor whole = standing_for_storage(tensor);
  const Named* named = find_named(tensor);
  if (!named) return {constant_value(whole), geometry_of(whole)};
  const at::Tensor first = own_window(named->tensor.tensor);
  if (same_elements(geometry_of(first), geometry_of(standing_for_storage(first)))) {
    return {add_state(*named), geometry_of(first)};
  }
  // Weights that are windows of one storage: each is a state, the storage is made of them.
  ValueId content = constant_value(whole);
  std::vector<Geometry> windows;
  for (const Named& other : named_) {
    if (!other.tensor.tensor.storage().is_alias_of(tensor.storage())) continue;
    const Geometry window = geometry_of(other.tensor.tensor);
    if (std::find(windows.begin(), windows.end(), window) != windows.end()) continue;
    windows.push_back(window);
    content = builder_.add("write_view", {content, add_state(other)},
                           {{"strides", window.strides}, {"offset", window.offset}});
  }
  return {content, geometry_of(whole)};
}

ValueId Recorder::add_state(const Named& named) {
  check(named.tensor.tensor.is_cpu(),
        "the model's '{}' is on the device {}; weights must be on the CPU when a model is compiled",
        named.tensor.name, named.tensor.tensor.device().str());
  const at::Tensor host = own_window(named.tensor.tensor);
  bound_states_.push_back({named.tensor.name, named.kind, host});
  return graph_.add_state(named.kind, named.tensor.name, graph_type_of(host));
}

ValueId Recorder::constant_value(const at::Tensor& whole) {
  TESSERA_INVARIANT(whole.storage().data() || whole.numel() == 0,
                    "a value that was not computed is taken for a constant");
  const DType dtype = narrowed(dtype_of(whole.scalar_type()));
  const at::Tensor values = narrowed_values(whole, "a constant");
  const auto* data = static_cast<const std::byte*>(values.data_ptr());
  const size_t size = size_of(dtype);
  const size_t byte_count = static_cast<size_t>(values.numel()) * size;
  const Shape shape = shape_of(whole);
  const bool splat = byte_count > 0 && std::memcmp(data, data + size, byte_count - size) == 0;
  if (splat || byte_count == 0) {
    const double value = byte_count == 0 ? 0 : values.flatten()[0].item().toDouble();
    return builder_.add("fill", {}, {{"shape", shape}, {"value", value}, {"dtype", dtype}});
  }
  auto blob = std::make_shared<std::vector<std::byte>>(data, data + byte_count);
  return builder_.add("constant", {},
                      {{"shape", shape}, {"dtype", dtype}, {"data", Blob(std::move(blob))}});
}

ValueId Recorder::read(const at::Tensor& tensor) { return versions_.read(tensor); }

std::optional<at::Tensor> Recorder::example_of(const at::Tensor& tensor) {
  if (unsupported_.is_stand_in(tensor)) return std::nullopt;
  return example_value(graph_, read(tensor), examples_);
}

// Models keep switches in buffers (fake quantisation does) and decide by them what forward does.
// Where they stand when the model is compiled is where they stay.
bool Recorder::is_switch(const Named& named) {
  const at::Tensor& tensor = named.tensor.tensor;
  const bool small = tensor.numel() <= 8;
  const bool flags = tensor.scalar_type() == at::kByte || tensor.scalar_type() == at::kBool;
  return named.kind == StateKind::buffer && small && flags;
}

void Recorder::note_switches(const std::vector<at::Tensor>& read) {
  for (const at::Tensor& tensor : read) {
    if (!tensor.has_storage() || !find_named(tensor)) continue;
    switches_.try_emplace(tensor.storage().unsafeGetStorageImpl(), provenance_.origin());
  }
}

bool Recorder::may_look_at(const at::Tensor& tensor) {
  if (!is_constant(tensor)) return false;
  note_switches({tensor});
  return true;
}

// One that forward changes would stand elsewhere when the program runs again.
void Recorder::check_switches() const {
  for (const auto& [named, kind] : named_) {
    const auto at = switches_.find(named.tensor.storage().unsafeGetStorageImpl());
    if (at == switches_.end() || versions_.untouched(named.tensor)) continue;
    fail(ErrorKind::user,
         "forward looks at the value of buffer '{}' at {} and changes the buffer, as layers do "
         "that set themselves up in their first call: a program would do the same in every call; "
         "call the module itself once before it is compiled, or compute with the buffer by tensor "
         "operators, in a type of more than one byte",
         named.name, place(at->second));
  }
}

bool Recorder::made_in_forward(const at::Tensor& tensor) const {
  return tensor.has_storage() && made_in_forward_.contains(tensor.storage().unsafeGetStorageImpl());
}

int64_t Recorder::value_number(const at::Tensor& tensor) {
  check(!is_constant(tensor),
        "getIpuTensorId: the tensor is a constant, not a value of the program");
  return read(tensor).index;
}

bool Recorder::is_constant(const at::Tensor& tensor) const {
  if (!tensor.has_storage()) return true;  // a sparse one; the program makes none
  if (!tensor.storage().data() && tensor.numel() > 0) return false;
  const Named* named = find_named(tensor);
  return (!named || is_switch(*named)) && versions_.untouched(tensor);
}

void Recorder::write(const at::Tensor& tensor, ValueId value) {
  value = builder_.cast(value, dtype_of(tensor.scalar_type()));
  const Shape all = broadcast(shape_of(tensor), builder_.shape(value));
  check(all == shape_of(tensor), "output with shape {} doesn't match the broadcast shape {}",
        to_string(shape_of(tensor)), to_string(all));
  versions_.write(tensor, builder_.expand(value, shape_of(tensor)));
}

void Recorder::record(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const AtenCall call(op, stack);
  const bool random = op.hasTag(at::Tag::nondeterministic_seeded);
  if (unsupported_.concerns(call) && !can_run_now(call)) {
    record_unsupported(call, stack);
    return;
  }
  if (depends_on_values(call) && !can_run_now(call)) {
    if (makes_tensor(call)) throw shape_refusal(call, provenance_.origin());
    refuse_value(asked_by(call));
  }
  if (call.schema().name().starts_with("profiler::") || is_view(op, call)) {
    run_on(c10::DispatchKey::CPU, op, stack);
    return;
  }
  const bool runs_now = !random && can_run_now(call) && !rounds_to_bfloat16(call);
  if (runs_now && !call.facts().reads_sizes_only) note_switches(call.tensors());
  if (!makes_tensor(call)) {
    answer(call, stack);
    return;
  }
  if (runs_now) {
    run_now(op, call, stack);
    return;
  }
  builder_.set_place(provenance_.origin(), Phase::micro_batch);
  if (record_data_movement(call, stack)) return;
  const auto matched = match(call);
  if (matched && record_row(call, *matched, stack)) return;
  record_host_call(op, call, stack);
}

// An operator that gives no tensor: what can be told from sizes and types is told.
void Recorder::answer(const AtenCall& call, torch::jit::Stack& stack) {
  if (can_run_now(call)) {
    run_on(c10::DispatchKey::CPU, call.op(), stack);
    return;
  }
  torch::jit::Stack results;
  try {
    results = shapes_only(call);
  } catch (const std::exception&) {
    front_end_.forget_error();
    refuse_value(asked_by(call));
  }
  torch::jit::drop(stack, call.count());
  for (c10::IValue& result : results) stack.push_back(std::move(result));
}

// An operator whose arguments are all known gives a constant, which becomes part of the graph when
// something reads it. What was there before forward is never written to.
bool Recorder::can_run_now(const AtenCall& call) const {
  constexpr int64_t most_elements = 1 << 16;  // more is left to the program
  if (call.facts().reads_sizes_only) return true;
  for (const at::Tensor& tensor : call.tensors()) {
    if (!is_constant(tensor) || tensor.numel() > most_elements) return false;
  }
  if (!call.written_arguments().empty() && computes_with_short_floats(call)) return false;
  for (const size_t i : call.written_arguments()) {
    if (!call.argument(i).isTensor()) return false;
    const at::Tensor target = call.argument(i).toTensor();
    if (!made_in_forward_.contains(target.storage().unsafeGetStorageImpl())) return false;
    if (versions_.seen(target)) return false;
  }
  const auto row = match(call);
  return !row || row->hidden_mutations.empty();
}

// PyTorch would round what it computes from constants, or converts; the program does not.
bool Recorder::rounds_to_bfloat16(const AtenCall& call) const {
  const auto is_bfloat16 = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.scalar_type() == at::kBFloat16;
  };
  const std::vector<at::Tensor> tensors = call.tensors();
  const bool given = std::any_of(tensors.begin(), tensors.end(), is_bfloat16);
  const c10::IValue* asked = call.find("dtype");
  const bool wanted = asked && asked->isInt() && asked->toScalarType() == at::kBFloat16;
  const bool wider = std::any_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return tensor.is_floating_point() && !is_bfloat16(tensor);
  });
  if (call.facts().reads_sizes_only || !(given || wanted)) return false;
  if (wider) return true;
  if (!given || !computes_with_short_floats(call)) return false;
  try {
    const torch::jit::Stack results = dry_run(call, front_end_.forget_error);
    return std::any_of(results.begin(), results.end(), [&](const c10::IValue& result) {
      return result.isTensor() && is_bfloat16(result.toTensor());
    });
  } catch (const std::exception&) {
    front_end_.forget_error();
    return false;
  }
}

void Recorder::run_now(const c10::OperatorHandle& op, const AtenCall& call,
                       torch::jit::Stack& stack) {
  const size_t results = call.schema().returns().size();
  if (computes_with_short_floats(call)) {
    torch::jit::Stack values = values_in_single(call, front_end_.forget_error);
    torch::jit::drop(stack, call.count());
    for (c10::IValue& value : values) stack.push_back(std::move(value));
  } else {
    run_on(c10::DispatchKey::CPU, op, stack);
  }
  for (c10::IValue& result : torch::jit::last(stack, results).vec()) {
    if (!result.isTensor() || !result.toTensor().defined()) continue;
    const at::Tensor made = result.toTensor();
    if (!made.has_storage()) continue;
    if (call.facts().leaves_unset && made.numel() > 0) {
      std::memset(compat::writable_data(made.storage()), 0, made.storage().nbytes());
    }
    made_in_forward_.emplace(made.storage().unsafeGetStorageImpl(), made.storage());
  }
  if (results != 1 || !stack.back().isTensor() || !stack.back().toTensor().defined()) return;
  const at::Tensor made = stack.back().toTensor();
  if (!made.has_storage() || made.storage().data() || made.numel() == 0) return;
  // PyTorch's zeros without memory.
  at::Tensor zeros = at::zeros(made.sizes(), made.scalar_type());
  made_in_forward_.emplace(zeros.storage().unsafeGetStorageImpl(), zeros.storage());
  stack.back() = std::move(zeros);
}

// Copies between tensors are bookkeeping: the destination holds the source's value.
bool Recorder::record_data_movement(const AtenCall& call, torch::jit::Stack& stack) {
  const Movement movement = call.facts().movement;
  if (movement == Movement::none) return false;
  const ErrorContext where(source_place(builder_.origin()), "{} at {}", call.overload(),
                           place(builder_.origin()));
  const at::Tensor self = call.tensor("self");
  at::Tensor result = self;
  if (movement == Movement::clone) {
    result = clone(call, self);
  } else if (movement == Movement::copy_into) {
    write(self, read(call.tensor(call.find("src") ? "src" : "value")));
  } else {
    const c10::IValue* value = call.find("value");
    fill(self, value ? value->toScalar() : c10::Scalar(0));
  }
  torch::jit::drop(stack, call.count());
  torch::jit::push(stack, result);
  return true;
}

at::Tensor Recorder::clone(const AtenCall& call, const at::Tensor& self) {
  const c10::IValue* dtype = call.find("dtype");
  const auto type = dtype && !dtype->isNone() ? dtype->toScalarType() : self.scalar_type();
  const c10::IValue* format = call.find("memory_format");
  const auto memory_format =
      format && !format->isNone() ? std::optional(format->toMemoryFormat()) : std::nullopt;
  const ValueId value = builder_.cast(read(self), narrowed(dtype_of(type)));
  return fresh(copy_geometry(self, memory_format), type, value);
}

void Recorder::fill(const at::Tensor& self, const c10::Scalar& number) {
  if (number.isIntegral(true) && c10::isIntegralType(self.scalar_type(), true)) {
    check_fits(number.toLong(), "the scalar argument");
  }
  write(self, builder_.add("fill", {},
                           {{"shape", shape_of(self)},
                            {"value", number.toDouble()},
                            {"dtype", narrowed(dtype_of(self.scalar_type()))}}));
}

void Recorder::record_unsupported(const AtenCall& call, torch::jit::Stack& stack) {
  const Origin origin = provenance_.origin();
  torch::jit::Stack results;
  try {
    results = dry_run(call, front_end_.forget_error);
  } catch (const std::exception&) {
    front_end_.forget_error();
    unsupported_.give_up(call, origin);
  }
  unsupported_.record(call, origin, results, fakes_, stack);
}

void Recorder::refuse_value(const std::string& asked_by) {
  throw value_refusal(asked_by, provenance_.origin());
}

void Recorder::mark_loss(const at::Tensor& loss) {
  if (unsupported_.is_stand_in(loss)) return;
  losses_.push_back({loss, read(loss), provenance_.origin()});
}

bool Recorder::makes_batch_mean(const at::Tensor& dividend, const at::Scalar& divisor) const {
  if (losses_.empty()) return false;
  const Loss& newest = losses_.back();
  return newest.batch && newest.tensor.is_same(dividend) &&
         divisor.toDouble() == static_cast<double>(*newest.batch);
}

ValueId Recorder::written_value(const at::Tensor& tensor) {
  return versions_.untouched(tensor) ? ValueId{} : read(own_window(tensor));
}

void Recorder::borrow(const NamedTensor& weight) {
  if (!find_named(weight.tensor)) borrowed_.push_back(weight);
}

void Recorder::finish_states() {
  for (const auto& [named, kind] : named_) {
    if (versions_.untouched(named.tensor)) continue;
    builder_.set_place({}, Phase::micro_batch);
    const at::Tensor window = own_window(named.tensor);
    const ValueId value = versions_.read(window);
    if (!graph_.find_state(named.name)) {
      // Tied to a name that has the state already, or written without having been read.
      const bool tied =
          std::any_of(bound_states_.begin(), bound_states_.end(), [&](const BoundState& bound) {
            return bound.host.storage().is_alias_of(window.storage()) &&
                   geometry_of(bound.host) == geometry_of(window);
          });
      if (tied) continue;
      add_state({named, kind});
    }
    for (State& state : graph_.states()) {
      if (state.name != named.name) continue;
      state.after_micro_batch = value;
      state.after_update = value;
    }
  }
}

}  // namespace tessera
