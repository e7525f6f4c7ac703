#include "tessera/torch/result_geometry.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "tessera/torch/aten_facts.h"
#include "tessera/torch/compat.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/fake_storage.h"
#include "tessera/torch/host_call.h"
#include "tessera/torch/pytorch_words.h"

namespace tessera {
namespace {

// Who wrote PyTorch's rule for tensors without memory.
enum class Rule {
  kernels_own,  // the kernel starts with it
  generic,      // the operator in terms of others; some choose those by the device
  late,         // written in Python beside the kernel, knowing less of strides; or there is none
  none          // only one that throws
};

Rule read_rule(const c10::OperatorHandle& op) {
  const std::string table = op.dumpComputedTable();
  const std::string_view place = place_of_meta_rule(table);
  if (is_kernels_own_rule(place)) return Rule::kernels_own;
  if (is_rule_that_throws(place)) return Rule::none;
  if (!is_rule_in_cpp(place)) return Rule::late;
  const AtenFacts& facts = facts_of(c10::toString(op.operator_name()));
  return facts.lacks_meta_rule ? Rule::none : Rule::generic;
}

Rule rule_of(const c10::OperatorHandle& op) {
  static std::mutex one_at_a_time;
  static std::unordered_map<c10::OperatorName, Rule> known;
  const std::lock_guard lock(one_at_a_time);
  const auto at = known.find(op.operator_name());
  return at != known.end() ? at->second
                           : known.emplace(op.operator_name(), read_rule(op)).first->second;
}

// Row by row, in the strides of sizes one too: a memory format is read from those.
bool is_plain(const at::Tensor& tensor) {
  return tensor.strides() == at::IntArrayRef(contiguous_strides(shape_of(tensor)));
}

using Ask = std::function<torch::jit::Stack(const AtenCall&)>;

// What PyTorch makes of the call, by the first of these that can say; none of it means anything.
torch::jit::Stack first_answer(const AtenCall& call, const std::vector<Ask>& asks,
                               const std::function<void()>& forget_error) {
  for (const Ask& ask : asks) {
    try {
      return ask(call);
    } catch (const std::exception&) {
      forget_error();
    }
  }
  return {};
}

torch::jit::Stack made_by_pytorch(const AtenCall& call, bool is_cheap,
                                  const std::function<void()>& forget_error) {
  const std::vector<at::Tensor> tensors = call.tensors();
  const bool plain = std::all_of(tensors.begin(), tensors.end(), is_plain);
  const Rule rule = rule_of(call.op());
  // Kernels without a rule make plain results of plain operands.
  if (plain && (rule == Rule::late || rule == Rule::none)) return {};
  std::vector<Ask> asks;
  if (rule != Rule::none) asks.emplace_back(shapes_only);
  // A kernel may start with its rule and still give its result another format.
  if (is_cheap && !(plain && rule == Rule::kernels_own)) {
    const Ask kernel = [&](const AtenCall& asked) { return trial_run(asked, forget_error); };
    asks.insert(plain ? asks.end() : asks.begin(), kernel);
  }
  return first_answer(call, asks, forget_error);
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

// What most kernels do that PyTorch cannot be asked about.
Geometry in_format_of_first(const AtenCall& call, const Shape& shape) {
  const std::vector<at::Tensor> tensors = call.tensors();
  const auto format =
      tensors.empty() ? at::MemoryFormat::Contiguous : tensors[0].suggest_memory_format();
  if (format == at::MemoryFormat::ChannelsLast && shape.size() == 4) {
    return {shape, c10::get_channels_last_strides_2d(shape), 0};
  }
  if (format == at::MemoryFormat::ChannelsLast3d && shape.size() == 5) {
    return {shape, c10::get_channels_last_strides_3d(shape), 0};
  }
  return dense(shape);
}

}  // namespace

std::vector<Geometry> result_geometries(const AtenCall& call, const std::vector<Shape>& shapes,
                                        bool is_cheap, const std::function<void()>& forget_error) {
  const torch::jit::Stack made = made_by_pytorch(call, is_cheap, forget_error);
  std::vector<Geometry> geometries;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const auto like = i < made.size() ? geometry_like(made[i], shapes[i]) : std::nullopt;
    geometries.push_back(like ? *like : in_format_of_first(call, shapes[i]));
  }
  return geometries;
}

torch::jit::Stack laid_out_dry_run(const AtenCall& call,
                                   const std::function<void()>& forget_error) {
  if (rule_of(call.op()) != Rule::kernels_own && has_few_elements(call)) {
    try {
      return trial_run(call, forget_error);
    } catch (const std::exception&) {
      forget_error();
    }
  }
  return dry_run(call, forget_error);
}

Geometry copy_geometry(const at::Tensor& tensor, std::optional<at::MemoryFormat> format) {
  const at::Tensor like =
      at::empty_like(to_meta(tensor), at::TensorOptions(), compat::optional_of(format));
  return {like.sizes().vec(), like.strides().vec(), 0};
}

}  // namespace tessera
