#include "tessera/torch/host_call.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <dlfcn.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "tessera/base/error.h"
#include "tessera/ops/host_call.h"
#include "tessera/torch/compat.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/fake_storage.h"
#include "tessera/torch/host_arguments.h"
#include "tessera/torch/narrowing.h"

namespace tessera {
namespace {

// PyTorch's kernels get one thread, so that results do not depend on how many it would take.
class OneThread {
 public:
  OneThread() : openmp_(at::get_num_threads()), blas_(blas().count ? blas().count() : 1) {
    if (openmp_ > 1) omp_set_num_threads(1);
    if (blas_ > 1) blas().set(1);
  }
  ~OneThread() {
    if (openmp_ > 1) omp_set_num_threads(openmp_);
    if (blas_ > 1) blas().set(blas_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  // OpenBLAS has threads of its own; another BLAS library goes by OpenMP's number.
  struct Blas {
    int (*count)() = nullptr;
    void (*set)(int) = nullptr;
  };
  static const Blas& blas() {
    static const Blas found = [] {
      Blas library{
          reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_num_threads")),
          reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))};
      return library.count && library.set ? library : Blas{};
    }();
    return found;
  }

  int openmp_, blas_;
};

// For random operators that take no generator: PyTorch's own is put elsewhere for their call.
class SeededDefaultGenerator {
 public:
  explicit SeededDefaultGenerator(uint64_t seed)
      : generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard lock(generator_.mutex());
    state_ = generator_.get_state();
    generator_.set_current_seed(seed);
  }
  ~SeededDefaultGenerator() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state_);
  }
  SeededDefaultGenerator(const SeededDefaultGenerator&) = delete;
  SeededDefaultGenerator& operator=(const SeededDefaultGenerator&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;
};

bool is_generator(const c10::Argument& argument) {
  return argument.type()->str().find("Generator") != std::string::npos;
}

// An element type is a whole number among a call's arguments.
bool asks_for_short_float(const c10::Argument& argument, const c10::IValue& value) {
  return argument.name() == "dtype" && value.isInt() && is_short_float(value.toScalarType());
}

bool is_written(const AtenFacts& facts, const c10::Argument& argument) {
  return (argument.alias_info() && argument.alias_info()->isWrite()) ||
         is_named(facts.secret_writes, argument.name());
}

void append_tensors(const c10::IValue& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensor()) {
    tensors.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (at::Tensor& tensor : value.toTensorVector()) tensors.push_back(std::move(tensor));
  }
}

// A node's call, taken apart once.
struct ParsedCall {
  c10::OperatorHandle op;
  const AtenFacts& facts;
  std::vector<HostArgument> arguments;
  std::vector<std::optional<TensorType>> results;

  explicit ParsedCall(const Attrs& attrs)
      : op(find(attrs.text("overload"))),
        facts(facts_of(attrs.text("overload"))),
        arguments(parse_host_arguments(attrs.text("arguments"), op.schema())),
        results(parse_host_results(attrs.text("results"))) {
    // Floats of 16 bits have been made float32 by the program.
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (asks_for_short_float(op.schema().arguments()[i], arguments[i].constant)) {
        arguments[i].constant = static_cast<int64_t>(at::kFloat);
      }
    }
    // A graph from a file may leave out anything; kernels do not look.
    for (size_t i = 0; i < arguments.size() && may_be_in_file(attrs.text("overload")); ++i) {
      const c10::Argument& argument = op.schema().arguments()[i];
      const bool none =
          arguments[i].kind == HostArgument::Kind::constant && arguments[i].constant.isNone();
      check(!none || argument.type()->kind() == c10::TypeKind::OptionalType, ErrorKind::value,
            "{} needs its argument '{}'", attrs.text("overload"), argument.name());
    }
  }

  static c10::OperatorHandle find(const std::string& overload) {
    const size_t dot = overload.find('.');
    const auto found = c10::Dispatcher::singleton().findSchema(
        {overload.substr(0, dot), dot == std::string::npos ? "" : overload.substr(dot + 1)});
    check(found.has_value(), "this PyTorch has no operator {}", overload);
    return *found;
  }
};

const ParsedCall& parsed_call(const Attrs& attrs) {
  static std::map<std::tuple<std::string, std::string, std::string>, ParsedCall> calls;
  const auto key = std::tie(attrs.text("overload"), attrs.text("arguments"), attrs.text("results"));
  const auto at = calls.find(key);
  return at != calls.end() ? at->second : calls.emplace(key, ParsedCall(attrs)).first->second;
}

at::Tensor over(const TensorView& view) {
  const auto options = at::TensorOptions(scalar_type_of(view.dtype));
  if (view.numel() == 0)
    return at::empty(at::IntArrayRef(view.sizes.data(), view.sizes.size()), options);
  return at::from_blob(view.data, at::IntArrayRef(view.sizes.data(), view.sizes.size()),
                       at::IntArrayRef(view.strides.data(), view.strides.size()), options);
}

at::Tensor operand_tensor(const KernelCall& call, const HostOperand& operand, bool written) {
  check(call.has_input(operand.number), ErrorKind::value, "there is no operand {}", operand.number);
  const at::Tensor tensor = over(call.inputs[operand.number]);
  if (operand.dtype && *operand.dtype != call.inputs[operand.number].dtype) {
    return tensor.to(scalar_type_of(*operand.dtype));
  }
  return written ? tensor.clone() : tensor;
}

c10::IValue argument_value(const KernelCall& call, const HostArgument& argument, bool written) {
  const auto tensor = [&](const std::optional<HostOperand>& operand) {
    return operand ? operand_tensor(call, *operand, written) : at::Tensor();
  };
  switch (argument.kind) {
    case HostArgument::Kind::constant:
      return argument.constant;
    case HostArgument::Kind::generator:
      return {};
    case HostArgument::Kind::tensor:
      return tensor(argument.tensors[0]);
    case HostArgument::Kind::tensors: {
      std::vector<at::Tensor> list;
      for (const auto& operand : argument.tensors) list.push_back(tensor(operand));
      return list;
    }
    case HostArgument::Kind::optional_tensors: {
      c10::List<compat::optional<at::Tensor>> list;
      for (const auto& operand : argument.tensors) {
        list.push_back(operand ? compat::optional<at::Tensor>(tensor(operand)) : compat::nullopt);
      }
      return list;
    }
  }
  return {};
}

void store_results(const KernelCall& call, const ParsedCall& host,
                   const std::vector<at::Tensor>& tensors) {
  check(tensors.size() == host.results.size(), "it gave {} results instead of {}", tensors.size(),
        host.results.size());
  size_t next = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!host.results[i]) continue;
    const at::Tensor to = over(call.outputs[next++]);
    check(tensors[i].defined() && tensors[i].sizes() == to.sizes(),
          "result {} has shape {}, which was {} when the model was compiled; a static program "
          "cannot have results whose shape depends on values",
          i, tensors[i].defined() ? to_string(shape_of(tensors[i])) : "none",
          to_string(shape_of(to)));
    to.copy_(to.scalar_type() == at::kInt ? narrowed_values(tensors[i], "the result") : tensors[i]);
  }
}

void call_pytorch(const KernelCall& call, const ParsedCall& host) {
  const auto& schema = host.op.schema();
  std::optional<uint64_t> seed;
  if (call.attrs.has("key")) {
    const auto key = static_cast<uint64_t>(call.attrs.integer("key"));
    const auto words = random_words(call.rng, key, 0);
    seed = uint64_t{words[0]} << 32 | words[1];
  }
  bool takes_generator = false;
  std::vector<at::Tensor> tensors;
  torch::jit::Stack stack;
  for (size_t i = 0; i < host.arguments.size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (seed && is_generator(argument)) {
      takes_generator = true;
      stack.push_back(at::make_generator<at::CPUGeneratorImpl>(*seed));
      continue;
    }
    const bool written = is_written(host.facts, argument);
    stack.push_back(argument_value(call, host.arguments[i], written));
    if (written) append_tensors(stack.back(), tensors);
  }
  std::unique_ptr<SeededDefaultGenerator> seeded;
  if (seed && !takes_generator) seeded = std::make_unique<SeededDefaultGenerator>(*seed);
  host.op.callBoxed(&stack);
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    if (!returned_argument(schema, i)) append_tensors(stack[i], tensors);
  }
  store_results(call, host, tensors);
}

void run_host_call(const KernelCall& call) {
  // OpenBLAS's number of threads and PyTorch's generator belong to the whole process.
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const OneThread one_thread;
  const at::NoGradGuard no_gradients;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  try {
    call_pytorch(call, parsed_call(call.attrs));
  } catch (const c10::Error& error) {
    fail(ErrorKind::user, "{}: {}", call.attrs.text("overload"), error.what_without_backtrace());
  } catch (const Error&) {
    throw;
  } catch (const InternalError&) {
    throw;
  } catch (const std::exception& error) {
    // Some of its kernels throw what the standard library has.
    fail(ErrorKind::user, "{}: {}", call.attrs.text("overload"), error.what());
  }
}

enum class ShortFloats { stay, become_float32 };

// The call with every tensor replaced.
torch::jit::Stack run_with(c10::DispatchKey key, const AtenCall& call,
                           const std::function<at::Tensor(const at::Tensor&)>& replacement,
                           ShortFloats short_floats = ShortFloats::stay) {
  const auto replaced = [&](const at::Tensor& tensor) {
    return tensor.defined() ? replacement(tensor) : tensor;
  };
  torch::jit::Stack stack;
  for (size_t i = 0; i < call.count(); ++i) {
    const c10::IValue& value = call.argument(i);
    if (value.isTensor()) {
      stack.push_back(replaced(value.toTensor()));
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(replaced(tensor));
      stack.push_back(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<compat::optional<at::Tensor>> list;
      for (const compat::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        list.push_back(tensor ? compat::optional<at::Tensor>(replaced(*tensor)) : compat::nullopt);
      }
      stack.push_back(list);
    } else if (value.isGenerator()) {
      stack.push_back(value.toGenerator().clone());
    } else if (short_floats == ShortFloats::become_float32 &&
               asks_for_short_float(call.schema().arguments()[i], value)) {
      stack.push_back(static_cast<int64_t>(at::kFloat));
    } else {
      stack.push_back(value);
    }
  }
  call.op().redispatchBoxed(c10::DispatchKeySet(key), &stack);
  return stack;
}

bool sees_short_floats(const AtenCall& call) {
  for (size_t i = 0; i < call.count(); ++i) {
    if (asks_for_short_float(call.schema().arguments()[i], call.argument(i))) return true;
  }
  const std::vector<at::Tensor> tensors = call.tensors();
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& tensor) { return is_short_float(tensor.scalar_type()); });
}

// The type that floats of a call have by promotion, where PyTorch has no rule for its results.
at::ScalarType promoted_floats(const AtenCall& call) {
  const c10::IValue* asked = call.find("dtype");
  if (asked && asked->isInt()) return asked->toScalarType();
  std::optional<at::ScalarType> promoted;
  for (const at::Tensor& tensor : call.tensors()) {
    if (!tensor.is_floating_point()) continue;
    promoted = c10::promoteTypes(promoted.value_or(tensor.scalar_type()), tensor.scalar_type());
  }
  return promoted.value_or(at::kFloat);
}

// Of a call that was made in float32: the types that PyTorch would have given to its floats.
std::vector<at::ScalarType> float_types(const AtenCall& call, size_t count,
                                        const std::function<void()>& forget_error) {
  try {
    std::vector<at::ScalarType> types(count, at::kFloat);
    const torch::jit::Stack ruled = shapes_only(call);
    for (size_t i = 0; i < std::min(count, ruled.size()); ++i) {
      if (!ruled[i].isTensor() || !ruled[i].toTensor().defined()) continue;
      types[i] = ruled[i].toTensor().scalar_type();
    }
    return types;
  } catch (const std::exception&) {
    forget_error();
  }
  return std::vector<at::ScalarType>(count, promoted_floats(call));
}

// PyTorch has few kernels for floats of 16 bits: the call in float32, with results of the types it
// should have.
torch::jit::Stack run_in_single(const AtenCall& call,
                                const std::function<at::Tensor(const at::Tensor&)>& replacement,
                                const std::function<void()>& forget_error) {
  constexpr auto cpu = c10::DispatchKey::CPU;
  if (!sees_short_floats(call)) return run_with(cpu, call, replacement);
  torch::jit::Stack results = run_with(
      cpu, call,
      [&](const at::Tensor& tensor) {
        const at::Tensor given = replacement(tensor);
        return is_short_float(given.scalar_type()) ? given.to(at::kFloat) : given;
      },
      ShortFloats::become_float32);
  const std::vector<at::ScalarType> types = float_types(call, results.size(), forget_error);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!is_short_float(types[i]) || !results[i].isTensor()) continue;
    const at::Tensor& result = results[i].toTensor();
    if (result.defined() && result.scalar_type() == at::kFloat) results[i] = result.to(types[i]);
  }
  return results;
}

// Zeros are valid indices; where a kernel wants something it can invert, ones on the diagonal are;
// where it divides whole numbers, ones are.
enum class MadeUp { zeros, invertible, ones };

at::Tensor made_up(const at::Tensor& tensor, MadeUp kind) {
  // As much memory as all elements need, although some may share theirs: not all kernels ask.
  const int64_t size = std::max(extent(geometry_of(tensor)), tensor.numel());
  const bool whole = tensor.is_floating_point() && tensor.dim() < 2;
  const double all = kind == MadeUp::ones ? 1 : kind == MadeUp::invertible && whole ? 0.5 : 0;
  at::Tensor values =
      at::full({size}, all, tensor.options()).as_strided(tensor.sizes(), tensor.strides(), 0);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    values.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  if (kind == MadeUp::invertible && tensor.is_floating_point() && !whole) {
    values.diagonal(0, -2, -1).fill_(1);
  }
  return values;
}

}  // namespace

void use_pytorch_for_host_calls() { set_host_call_runner(&run_host_call); }

std::vector<at::Tensor> written_tensors(const AtenCall& call) {
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < call.count(); ++i) {
    if (is_written(call.facts(), call.schema().arguments()[i])) {
      append_tensors(call.argument(i), tensors);
    }
  }
  return tensors;
}

std::optional<size_t> returned_argument(const c10::FunctionSchema& schema, size_t result) {
  const auto* alias = schema.returns()[result].alias_info();
  if (!alias || !alias->isWrite()) return std::nullopt;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto* argument = schema.arguments()[i].alias_info();
    if (argument && argument->beforeSets() == alias->beforeSets()) return i;
  }
  return std::nullopt;
}

torch::jit::Stack shapes_only(const AtenCall& call) {
  return run_with(c10::DispatchKey::Meta, call, to_meta);
}

bool has_few_elements(const AtenCall& call) {
  constexpr int64_t most_elements = 1 << 18;
  int64_t elements = 0;
  for (const at::Tensor& tensor : call.tensors()) elements += tensor.numel();
  return elements <= most_elements;
}

torch::jit::Stack trial_run(const AtenCall& call, const std::function<void()>& forget_error) {
  // What it draws is not drawn for the program.
  std::unique_ptr<SeededDefaultGenerator> generator;
  if (call.op().hasTag(at::Tag::nondeterministic_seeded)) {
    generator = std::make_unique<SeededDefaultGenerator>(0);
  }
  const auto run_on = [&](MadeUp kind) {
    return run_in_single(
        call, [&](const at::Tensor& like) { return made_up(like, kind); }, forget_error);
  };
  std::exception_ptr refusal;
  for (const MadeUp kind : {MadeUp::zeros, MadeUp::invertible, MadeUp::ones}) {
    try {
      return run_on(kind);
    } catch (const std::exception&) {
      // Ones may be no valid indices, which says nothing of the call.
      if (kind != MadeUp::ones) refusal = std::current_exception();
      forget_error();
    }
  }
  std::rethrow_exception(refusal);
}

bool computes_with_short_floats(const AtenCall& call) {
  return call.facts().movement == Movement::none && !call.facts().reads_sizes_only &&
         sees_short_floats(call);
}

torch::jit::Stack values_in_single(const AtenCall& call,
                                   const std::function<void()>& forget_error) {
  return run_in_single(
      call, [](const at::Tensor& tensor) { return tensor; }, forget_error);
}

torch::jit::Stack dry_run(const AtenCall& call, const std::function<void()>& forget_error) {
  try {
    return shapes_only(call);
  } catch (const std::exception&) {
    forget_error();
  }
  return trial_run(call, forget_error);
}

}  // namespace tessera
