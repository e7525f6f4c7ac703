// How a call becomes a node: by its operator's row, or as a call of PyTorch's own kernel.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/native/TypeProperties.h>

#include <algorithm>

#include "tessera/ops/host_call.h"
#include "tessera/ops/partials.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/host_arguments.h"
#include "tessera/torch/host_call.h"
#include "tessera/torch/narrowing.h"
#include "tessera/torch/pytorch_rule.h"
#include "tessera/torch/recorder.h"
#include "tessera/torch/result_geometry.h"

namespace tessera {
namespace {

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

Attrs narrowed_attrs(Attrs attrs) {
  const Attrs original = attrs;
  for (const auto& [name, value] : original) {
    if (const auto* dtype = std::get_if<DType>(&value)) attrs.set(name, narrowed(*dtype));
  }
  return attrs;
}

// The type to which PyTorch brings the operands; nothing where each keeps its own.
std::optional<at::ScalarType> promoted_type(const OpDef& row, const MatchedCall& matched) {
  if (row.traits.promotion == Promotion::none) return std::nullopt;
  at::native::ResultTypeState state = {};
  for (size_t i = row.traits.promote_from; i < matched.operands.size(); ++i) {
    const CallOperand& operand = matched.operands[i];
    if (operand.tensor.defined()) {
      state = at::native::update_result_type_state(operand.tensor, state);
    } else if (operand.scalar) {
      state = at::native::update_result_type_state(*operand.scalar, state);
    }
  }
  const at::ScalarType promoted = at::native::result_type(state);
  if (row.traits.promotion == Promotion::floating && c10::isIntegralType(promoted, true)) {
    return c10::typeMetaToScalarType(at::get_default_dtype());
  }
  return promoted;
}

// Where a rule wants one type and floats of 16 bits stand beside others, they become f32, as
// PyTorch promotes them elsewhere. False where there is nothing to do.
bool widen_short_floats(Builder& builder, std::vector<ValueId>& operands,
                        std::vector<std::optional<TensorType>>& types) {
  const auto any = [&](DType dtype) {
    return std::any_of(types.begin(), types.end(),
                       [&](const auto& type) { return type && type->dtype == dtype; });
  };
  const bool f16 = any(DType::f16), bf16 = any(DType::bf16);
  const bool wide = any(DType::f32) || any(DType::f64);
  if (!(f16 && bf16) && !((f16 || bf16) && wide)) return false;
  for (size_t i = 0; i < types.size(); ++i) {
    if (!types[i] || !(types[i]->dtype == DType::f16 || types[i]->dtype == DType::bf16)) continue;
    operands[i] = builder.cast(operands[i], DType::f32);
    types[i]->dtype = DType::f32;
  }
  return true;
}

// Whether PyTorch's kernel is done before anybody notices.
bool is_cheap(const OpDef& row, std::span<const std::optional<TensorType>> operands,
              const Attrs& attrs, std::span<const TensorType> results) {
  if (!row.cost) return false;
  const bool contraction = row.kind == Kind::contraction;  // in a model there are many of them
  return work(row.cost(OpView(operands, attrs), results)) < (contraction ? 1 << 27 : 1 << 30);
}

}  // namespace

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

void Recorder::note_convolution(ValueId result) {
  const NodeId node = graph_.value(result).producer;
  if (!is_convolution(graph_, graph_.node(node))) return;
  multi_convs_.add(graph_, node, provenance_.own_sequence(), provenance_.running_sequence());
}

// False where the row's rule refuses what PyTorch accepts.
bool Recorder::record_row(const AtenCall& call, const MatchedCall& matched,
                          torch::jit::Stack& stack) {
  const OpDef& row = *matched.op;
  place_by_weights(matched);
  const ErrorContext where(source_place(builder_.origin()), "{} at {}", call.overload(),
                           place(builder_.origin()));

  const auto promoted = promoted_type(row, matched);
  std::vector<ValueId> operands;
  std::vector<std::optional<TensorType>> types;
  for (size_t i = 0; i < matched.operands.size(); ++i) {
    const CallOperand& operand = matched.operands[i];
    const auto cast_to = i >= row.traits.promote_from ? promoted : std::nullopt;
    operands.push_back(operand_value(operand, cast_to));
    if (!operands.back().valid()) {
      types.push_back(std::nullopt);
      continue;
    }
    const auto own_type = operand.scalar ? operand.scalar->type() : operand.tensor.scalar_type();
    types.push_back(TensorType{dtype_of(cast_to ? *cast_to : own_type),
                               operand.scalar ? Shape{} : shape_of(operand.tensor)});
  }

  const bool types_matter = !is_all_floats(call);
  const auto ruled = types_matter ? ruled_results(call, front_end_.forget_error) : std::nullopt;
  Attrs attrs = matched.attrs;
  if (row.traits.reads_random_state) attrs.set("key", draw_key(call));
  const auto ruled_by_row = [&]() -> std::optional<std::vector<TensorType>> {
    try {
      return infer(row, types, attrs);
    } catch (const Error&) {
      return std::nullopt;
    }
  };
  auto by_row = ruled_by_row();
  const bool widened = !by_row && widen_short_floats(builder_, operands, types);
  if (widened) by_row = ruled_by_row();
  if (!by_row) {
    check_legal(call, front_end_.forget_error);
    return false;
  }
  const std::vector<TensorType>& torch_types = *by_row;
  // A gradient's operands may be what a row saved, in types of its own; and of types that it would
  // not mix, PyTorch's rules take the first.
  const bool gradient = is_gradient(call.schema().name());
  if (ruled && !widened && !gradient && !agree(call, *ruled, torch_types)) return false;
  if (types_matter && !gradient && !row.traits.reads_random_state) {
    check_implemented(call, front_end_.forget_error);
  }
  const std::vector<ValueId> results =
      builder_.add_all(row.name, std::move(operands), narrowed_attrs(attrs));
  if (has_partials(row)) note_convolution(results[0]);

  // Arguments that the call changes take the results in order; the rest are fresh tensors.
  const std::vector<size_t>& written = matched.written;
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
  std::vector<c10::IValue> returned;
  const size_t count = call.schema().returns().size();
  for (size_t i = 0; i < std::min(count, written.size()); ++i) {
    returned.push_back(call.argument(written[i]));
  }
  if (returned.size() < count) {
    std::vector<Shape> shapes;
    for (const TensorType& type : torch_types) shapes.push_back(type.shape);
    const auto geometries = result_geometries(
        call, shapes, is_cheap(row, types, attrs, torch_types), front_end_.forget_error);
    for (size_t i = returned.size(); i < count; ++i) {
      returned.push_back(
          i < results.size()
              ? fresh(geometries[i], scalar_type_of(torch_types[i].dtype), results[i])
              : at::Tensor());
    }
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
  const ErrorContext where(source_place(builder_.origin()), "{} at {}", call.overload(),
                           place(builder_.origin()));
  const torch::jit::Stack results = laid_out_dry_run(call, front_end_.forget_error);
  if (gives_unsupported(results)) {
    unsupported_.record(call, builder_.origin(), results, fakes_, stack);
    return;
  }
  const auto& schema = call.schema();

  std::vector<std::optional<TensorType>> types;
  const auto add_type = [&](const at::Tensor& tensor) {
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

}  // namespace tessera
