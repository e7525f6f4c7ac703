#include "tessera/torch/recorder.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/native/TypeProperties.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <unordered_set>

#include "tessera/ops/host_call.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/example_values.h"
#include "tessera/torch/host_arguments.h"
#include "tessera/torch/host_call.h"
#include "tessera/torch/narrowing.h"
#include "tessera/torch/pytorch_rule.h"
#include "tessera/torch/result_geometry.h"

namespace tessera {
namespace {

using Names = std::unordered_set<std::string_view>;

// Alias their argument although their schemas do not say so.
const Names undeclared_views = {"_unsafe_view", "unsafe_split.Tensor", "unsafe_split_with_sizes",
                                "lift"};

// Use only the sizes of their tensor argument; the values they make are known now.
const Names constants_like = {"empty_like", "new_empty", "new_empty_strided",
                              "zeros_like", "ones_like", "full_like",
                              "new_zeros",  "new_ones",  "new_full"};

bool is_view(const c10::OperatorHandle& op, const AtenCall& call) {
  if (op.hasTag(at::Tag::inplace_view) || undeclared_views.contains(call.overload())) return true;
  if (call.overload() == "detach_") return true;
  for (const auto& result : op.schema().returns()) {
    const auto* alias = result.alias_info();
    if (alias && !alias->isWrite()) return true;
  }
  return false;
}

bool makes_tensor(const c10::OperatorHandle& op) {
  for (const auto& result : op.schema().returns()) {
    if (result.type()->str().find("Tensor") != std::string::npos) return true;
  }
  return op.schema().returns().empty();
}

// Masks select a number of elements that depends on their values.
bool has_mask(const AtenCall& call) {
  const c10::IValue* indices = call.find("indices");
  if (!indices || !indices->isList()) return false;
  for (const c10::IValue& item : indices->toListRef()) {
    if (!item.isTensor() || !item.toTensor().defined()) continue;
    const auto type = item.toTensor().scalar_type();
    if (type == at::kBool || type == at::kByte) return true;
  }
  return false;
}

bool depends_on_values(const c10::OperatorHandle& op, const AtenCall& call) {
  if (call.overload() == "index.Tensor") return has_mask(call);
  return op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape) ||
         call.overload() == "is_nonzero";
}

void run_on(c10::DispatchKey key, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  op.redispatchBoxed(c10::DispatchKeySet(key), &stack);
}

// Drawn from PyTorch's generator, so that a recomputed dropout (torch.utils.checkpoint restores the
// generator) gets the key of its first run.
int64_t draw_key(const AtenCall& call) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  if (const auto* given = call.find("generator"); given && given->isGenerator()) {
    generator = given->toGenerator();
  }
  const std::lock_guard lock(generator.mutex());
  const uint64_t bits = at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
  return static_cast<int64_t>(bits >> 1);
}

// The tensor's window without its autograd history.
at::Tensor own_window(const at::Tensor& tensor) {
  return window_over(tensor.storage(), tensor.scalar_type(), geometry_of(tensor));
}

// The type in a graph, which has no 64-bit types.
DType graph_dtype(DType dtype) {
  check(narrowed(dtype) != DType::f16,
        "half precision cannot be computed with yet; use float32, for example by .float()");
  return narrowed(dtype);
}

bool gives_unsupported(const torch::jit::Stack& results) {
  for (const c10::IValue& result : results) {
    if (result.isTensor() && !fits_in_graph(result.toTensor())) return true;
    if (!result.isTensorList()) continue;
    for (const at::Tensor& tensor : result.toTensorVector()) {
      if (!fits_in_graph(tensor)) return true;
    }
  }
  return false;
}

TensorType graph_type_of(const at::Tensor& tensor) {
  TensorType type = type_of(tensor);
  type.dtype = graph_dtype(type.dtype);
  return type;
}

[[noreturn]] void refuse(Recorder& recorder, const Origin& origin, const std::string& asked_by,
                         const std::string& sentence) {
  const ErrorContext where("{} at {}", asked_by, place(origin));
  const Error error(ErrorKind::user, sentence);
  recorder.remember_refusal(error);
  throw error;
}

// For an operator whose result has as many elements as values say.
[[noreturn]] void refuse_shape(Recorder& recorder, const Origin& origin, const AtenCall& call) {
  const bool masked = call.overload() == "index.Tensor";  // which takes a mask's places
  const std::string name = masked ? "aten::nonzero" : call.schema().name();
  const bool counts =
      name.find("unique") != std::string::npos || name.find("bincount") != std::string::npos;
  refuse(recorder, origin, name,
         fmt::format("Operations using {} are unsupported because the output shape is determined "
                     "by the tensor values; {}",
                     name,
                     counts ? "count a known number of classes instead, with torch.bincount(x, "
                              "minlength=n) or one_hot(x, n).sum(0)"
                            : "keep the whole tensor instead, with torch.where or a product with "
                              "the mask"));
}

// Whether only shapes could be wrong, of which rows know: the call makes a tensor out of floats.
bool all_plain(const AtenCall& call) {
  if (!call.written_arguments().empty()) return false;
  for (const at::Tensor& tensor : call.tensors()) {
    if (tensor.scalar_type() != at::kFloat) return false;
  }
  return true;
}

// Whether PyTorch's kernel can be tried for nothing.
bool is_small(const AtenCall& call) {
  constexpr int64_t most_elements = 1 << 18;
  int64_t elements = 0;
  for (const at::Tensor& tensor : call.tensors()) elements += tensor.numel();
  return elements <= most_elements;
}

// Whether the element type that a row gives to its result is PyTorch's. Results that the call
// writes into its arguments take the arguments' types. Shapes are a row's own: PyTorch's rules
// leave some, such as that of isin with a number, to their kernels.
bool agree(const AtenCall& call, const torch::jit::Stack& pytorchs,
           const std::vector<TensorType>& rows) {
  // What comes after the first is often saved for the backward pass, in a form of a row's own.
  if (pytorchs.empty() || rows.empty() || returned_argument(call.schema(), 0)) return true;
  if (!pytorchs[0].isTensor() || !pytorchs[0].toTensor().defined()) return true;
  return dtype_of(pytorchs[0].toTensor().scalar_type()) == rows[0].dtype;
}

Attrs narrowed_attrs(Attrs attrs) {
  const Attrs original = attrs;
  for (const auto& [name, value] : original) {
    if (const auto* dtype = std::get_if<DType>(&value)) attrs.set(name, narrowed(*dtype));
  }
  return attrs;
}

// What PyTorch makes of operands that do not lie row by row, without values; nothing where it needs
// no asking or cannot say.
torch::jit::Stack laid_out_by_pytorch(const AtenCall& call, Kind kind,
                                      std::span<const at::Tensor> operands,
                                      const std::function<void()>& forget_error) {
  const auto plain = [](const at::Tensor& t) { return !t.defined() || t.is_contiguous(); };
  if (std::all_of(operands.begin(), operands.end(), plain)) return {};
  const std::string& name = call.schema().name();
  // Most go through PyTorch's iterator, whose rule result_geometry() knows.
  if (kind == Kind::elementwise && name != "aten::masked_fill") return {};
  // Their shape functions are written in Python and know less of strides than their kernels.
  const std::initializer_list<std::string_view> unsure = {"aten::_adaptive_avg_pool2d",
                                                          "aten::native_batch_norm", "aten::prelu"};
  if (std::find(unsure.begin(), unsure.end(), name) != unsure.end()) return {};
  try {
    return shapes_only(call);
  } catch (const std::exception&) {
    forget_error();
    return {};
  }
}

// The geometry of a tensor that PyTorch made, where it is of that shape and has no gaps.
std::optional<Geometry> geometry_like(const c10::IValue& made, const Shape& shape) {
  if (!made.isTensor() || !made.toTensor().defined()) return std::nullopt;
  const at::Tensor& tensor = made.toTensor();
  if (tensor.sizes() != at::IntArrayRef(shape)) return std::nullopt;
  Geometry geometry{shape, tensor.strides().vec(), 0};
  if (!memory_order(geometry)) return std::nullopt;
  return geometry;
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
  const DType dtype = graph_dtype(dtype_of(whole.scalar_type()));
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
  if (depends_on_values(op, call) && !can_run_now(call)) {
    if (makes_tensor(op)) refuse_shape(*this, provenance_.origin(), call);
    refuse_value(call.overload() == "_local_scalar_dense" ? ".item()" : call.overload());
  }
  if (call.schema().name().starts_with("profiler::") || is_view(op, call)) {
    run_on(c10::DispatchKey::CPU, op, stack);
    return;
  }
  const bool runs_now = !random && can_run_now(call);
  if (runs_now && !constants_like.contains(call.overload())) note_switches(call.tensors());
  if (!makes_tensor(op)) {
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
    refuse_value(call.overload() == "_local_scalar_dense" ? ".item()" : call.overload());
  }
  torch::jit::drop(stack, call.count());
  for (c10::IValue& result : results) stack.push_back(std::move(result));
}

// An operator whose arguments are all known gives a constant, which becomes part of the graph when
// something reads it. What was there before forward is never written to.
bool Recorder::can_run_now(const AtenCall& call) const {
  constexpr int64_t most_elements = 1 << 16;  // more is left to the program
  if (constants_like.contains(call.overload())) return true;
  for (const at::Tensor& tensor : call.tensors()) {
    if (!is_constant(tensor) || tensor.numel() > most_elements) return false;
  }
  for (const size_t i : call.written_arguments()) {
    if (!call.argument(i).isTensor()) return false;
    const at::Tensor target = call.argument(i).toTensor();
    if (!made_in_forward_.contains(target.storage().unsafeGetStorageImpl())) return false;
    if (versions_.seen(target)) return false;
  }
  const auto row = match(call);
  return !row || row->hidden_mutations.empty();
}

void Recorder::run_now(const c10::OperatorHandle& op, const AtenCall& call,
                       torch::jit::Stack& stack) {
  const bool unset =
      call.overload().starts_with("empty") || call.overload().starts_with("new_empty");
  const size_t results = call.schema().returns().size();
  run_on(c10::DispatchKey::CPU, op, stack);
  for (c10::IValue& result : torch::jit::last(stack, results).vec()) {
    if (!result.isTensor() || !result.toTensor().defined()) continue;
    const at::Tensor made = result.toTensor();
    if (!made.has_storage()) continue;
    if (unset && made.numel() > 0) {
      std::memset(made.storage().data(), 0, made.storage().nbytes());
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
  const std::string& name = call.overload();
  const auto finish = [&](const at::Tensor& result) {
    torch::jit::drop(stack, call.count());
    torch::jit::push(stack, result);
    return true;
  };
  const auto memory_format = [&]() -> std::optional<at::MemoryFormat> {
    const c10::IValue* format = call.find("memory_format");
    if (!format || format->isNone()) return std::nullopt;
    return format->toMemoryFormat();
  };
  const ErrorContext where("{} at {}", name, place(builder_.origin()));
  if (name == "clone" || name == "_to_copy") {
    const at::Tensor self = call.tensor("self");
    const c10::IValue* dtype = call.find("dtype");
    const auto type = dtype && !dtype->isNone() ? dtype->toScalarType() : self.scalar_type();
    const ValueId value = builder_.cast(read(self), graph_dtype(dtype_of(type)));
    return finish(fresh(copy_geometry(self, memory_format()), type, value));
  }
  if (name == "copy_") {
    const at::Tensor self = call.tensor("self");
    write(self, read(call.tensor("src")));
    return finish(self);
  }
  if (name == "zero_" || name == "fill_.Scalar") {
    const at::Tensor self = call.tensor("self");
    const c10::Scalar number = name == "zero_" ? c10::Scalar(0) : call.find("value")->toScalar();
    if (number.isIntegral(true) && c10::isIntegralType(self.scalar_type(), true)) {
      check_fits(number.toLong(), "the scalar argument");
    }
    const double value = number.toDouble();
    write(self, builder_.add("fill", {},
                             {{"shape", shape_of(self)},
                              {"value", value},
                              {"dtype", narrowed(dtype_of(self.scalar_type()))}}));
    return finish(self);
  }
  if (name == "fill_.Tensor") {
    const at::Tensor self = call.tensor("self");
    write(self, read(call.tensor("value")));
    return finish(self);
  }
  return false;
}

ValueId Recorder::operand_value(const CallOperand& operand,
                                std::optional<at::ScalarType> promoted) {
  if (operand.scalar) {
    const auto type = promoted ? *promoted : operand.scalar->type();
    if (operand.scalar->isIntegral(true) && c10::isIntegralType(type, true)) {
      check_fits(operand.scalar->toLong(), "the scalar argument");
    }
    return builder_.scalar(operand.scalar->toDouble(), dtype_of(type));
  }
  if (!operand.tensor.defined()) return {};
  const ValueId value = read(operand.tensor);
  return promoted ? builder_.cast(value, dtype_of(*promoted)) : value;
}

// A tensor takes its new shape, as in PyTorch, where its memory is all that it needs: it has as
// many elements, or it was made in forward and nothing has been written to it.
void Recorder::resize_out(const at::Tensor& out, const Shape& shape) const {
  if (out.sizes() == at::IntArrayRef(shape)) return;
  const bool unused = made_in_forward(out) && !versions_.seen(out);
  check(unused || out.numel() == numel(shape), "out= has shape {} but the result has shape {}",
        to_string(shape_of(out)), to_string(shape));
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  out.resize_(shape);
}

// False where the row's rule refuses what PyTorch accepts.
bool Recorder::record_row(const AtenCall& call, const MatchedCall& matched,
                          torch::jit::Stack& stack) {
  const OpDef& row = *matched.op;
  place_by_weights(matched);
  const ErrorContext where("{} at {}", call.overload(), place(builder_.origin()));

  std::optional<at::ScalarType> promoted;
  if (row.traits.promotion != Promotion::none) {
    at::native::ResultTypeState state = {};
    for (size_t i = row.traits.promote_from; i < matched.operands.size(); ++i) {
      const CallOperand& operand = matched.operands[i];
      if (operand.tensor.defined()) {
        state = at::native::update_result_type_state(operand.tensor, state);
      } else if (operand.scalar) {
        state = at::native::update_result_type_state(*operand.scalar, state);
      }
    }
    promoted = at::native::result_type(state);
    if (row.traits.promotion == Promotion::floating && c10::isIntegralType(*promoted, true)) {
      promoted = c10::typeMetaToScalarType(at::get_default_dtype());
    }
  }

  std::vector<ValueId> operands;
  std::vector<std::optional<TensorType>> types;
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < matched.operands.size(); ++i) {
    const CallOperand& operand = matched.operands[i];
    const auto cast_to = i >= row.traits.promote_from ? promoted : std::nullopt;
    operands.push_back(operand_value(operand, cast_to));
    tensors.push_back(operand.tensor);
    if (!operands.back().valid()) {
      types.push_back(std::nullopt);
      continue;
    }
    const auto own_type = operand.scalar ? operand.scalar->type() : operand.tensor.scalar_type();
    types.push_back(TensorType{dtype_of(cast_to ? *cast_to : own_type),
                               operand.scalar ? Shape{} : shape_of(operand.tensor)});
  }

  const auto ruled = all_plain(call) ? std::nullopt : ruled_results(call, front_end_.forget_error);
  Attrs attrs = matched.attrs;
  if (row.traits.reads_random_state) attrs.set("key", draw_key(call));
  std::vector<TensorType> torch_types;
  try {
    torch_types = infer(row, types, attrs);
  } catch (const Error&) {
    check_legal(call, front_end_.forget_error);
    return false;
  }
  if (ruled && !agree(call, *ruled, torch_types)) return false;
  if (ruled && !row.traits.reads_random_state && is_small(call)) {
    check_implemented(call, front_end_.forget_error);
  }
  for (const TensorType& type : torch_types) graph_dtype(type.dtype);  // refuses what has no kernel
  const std::vector<ValueId> results =
      builder_.add_all(row.name, std::move(operands), narrowed_attrs(std::move(attrs)));

  // Arguments that the call changes take the results in order; the rest are fresh tensors.
  const auto written = call.written_arguments();
  for (size_t i = 0; i < written.size(); ++i) {
    at::Tensor target = call.argument(written[i]).toTensor();
    if (written.size() == 1 && call.schema().arguments()[written[0]].is_out()) {
      resize_out(target, torch_types[i].shape);
    }
    write(target, results[i]);
  }
  for (const auto& [argument, result] : matched.hidden_mutations) {
    const at::Tensor target = call.tensor(argument);
    if (target.defined() && result < results.size()) write(target, results[result]);
  }
  const torch::jit::Stack like =
      laid_out_by_pytorch(call, row.kind, tensors, front_end_.forget_error);
  std::vector<c10::IValue> returned;
  for (size_t i = 0; i < call.schema().returns().size(); ++i) {
    if (i < written.size()) {
      returned.push_back(call.argument(written[i]));
      continue;
    }
    if (i >= results.size()) {
      returned.push_back(at::Tensor());
      continue;
    }
    const Shape& shape = torch_types[i].shape;
    const auto asked = i < like.size() ? geometry_like(like[i], shape) : std::nullopt;
    returned.push_back(fresh(asked ? *asked : result_geometry(row.kind, tensors, shape),
                             scalar_type_of(torch_types[i].dtype), results[i]));
  }
  torch::jit::drop(stack, call.count());
  for (c10::IValue& value : returned) stack.push_back(std::move(value));
  return true;
}

// A tensor like one that PyTorch made: same type and, where it has no gaps, same strides.
at::Tensor Recorder::fresh_like(const at::Tensor& result, ValueId value) {
  const Geometry geometry{shape_of(result), result.strides().vec(), 0};
  return fresh(memory_order(geometry) ? geometry : dense(geometry.shape), result.scalar_type(),
               value);
}

// No row: a node that calls PyTorch.
void Recorder::record_host_call(const c10::OperatorHandle& op, const AtenCall& call,
                                torch::jit::Stack& stack) {
  const ErrorContext where("{} at {}", call.overload(), place(builder_.origin()));
  const torch::jit::Stack results = dry_run(call, front_end_.forget_error);
  if (gives_unsupported(results)) {
    unsupported_.record(call, builder_.origin(), results, fakes_, stack);
    return;
  }
  const auto& schema = call.schema();

  std::vector<std::optional<TensorType>> types;
  const auto add_type = [&](const at::Tensor& tensor) {
    if (tensor.defined()) graph_dtype(dtype_of(tensor.scalar_type()));
    types.push_back(tensor.defined() ? std::optional(type_of(tensor)) : std::nullopt);
  };
  const std::vector<at::Tensor> written = written_tensors(call);
  for (const at::Tensor& tensor : written) add_type(tensor);
  for (size_t i = 0; i < results.size(); ++i) {
    if (returned_argument(schema, i)) continue;
    if (results[i].isTensor()) add_type(results[i].toTensor());
    if (!results[i].isTensorList()) continue;
    for (const at::Tensor& tensor : results[i].toTensorVector()) add_type(tensor);
  }

  std::vector<at::Tensor> tensors;
  Attrs attrs = {{"overload", c10::toString(op.operator_name())},
                 {"arguments", print_host_arguments(call, tensors)},
                 {"results", print_host_results(types)}};
  if (op.hasTag(at::Tag::nondeterministic_seeded)) attrs.set("key", draw_key(call));
  std::vector<ValueId> operands;
  for (const at::Tensor& tensor : tensors) operands.push_back(read(tensor));
  std::vector<ValueId> values;
  if (!types.empty()) values = builder_.add_all("aten", std::move(operands), std::move(attrs));

  auto value = values.begin();
  for (const at::Tensor& tensor : written) write(tensor, *value++);
  const auto made = [&](const at::Tensor& result) {
    return result.defined() ? fresh_like(result, *value++) : at::Tensor();
  };
  std::vector<c10::IValue> returned;
  for (size_t i = 0; i < results.size(); ++i) {
    if (const auto argument = returned_argument(schema, i)) {
      returned.push_back(call.argument(*argument));
    } else if (results[i].isTensor()) {
      returned.push_back(made(results[i].toTensor()));
    } else if (results[i].isTensorList()) {
      std::vector<at::Tensor> list;
      for (const at::Tensor& tensor : results[i].toTensorVector()) list.push_back(made(tensor));
      returned.push_back(list);
    } else {
      returned.push_back(results[i]);
    }
  }
  torch::jit::drop(stack, call.count());
  for (c10::IValue& result : returned) stack.push_back(std::move(result));
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
  refuse(*this, provenance_.origin(), asked_by,
         fmt::format("forward looked at the value of a tensor ({}), which is only known when the "
                     "program runs; .item(), bool(), tolist(), numpy() and control flow over "
                     "tensors cannot be part of a static graph: use tensor operators such as "
                     "torch.where, or pass the number as an argument that is not a tensor",
                     asked_by));
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
