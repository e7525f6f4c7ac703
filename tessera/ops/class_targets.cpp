#include "tessera/ops/class_targets.h"

#include "tessera/base/error.h"
#include "tessera/kernels/dispatch.h"
#include "tessera/ops/operand_checks.h"
#include "tessera/ops/row_parts.h"

namespace tessera::class_targets {

Layout::Layout(std::span<const int64_t> shape) {
  if (shape.size() == 1) {
    classes = shape[0];
    return;
  }
  batch = shape[0];
  classes = shape[1];
  for (const int64_t size : shape.subspan(2)) places *= size;
}

Targets::Targets(const KernelCall& call, size_t target, size_t weight, int64_t classes)
    : classes_(classes), ignored_(call.attrs.integer("ignore_index")) {
  const TensorView& view = call.inputs[target];
  labels_.resize(static_cast<size_t>(view.numel()));
  dispatch<Types::integers>(view.dtype, [&]<typename T>() {
    TensorView dense = view;
    dense.data = reinterpret_cast<std::byte*>(labels_.data());
    dense.dtype = DType::i32;
    map<int32_t, T>(call.pool, {&view, 1}, dense, [](T label) { return int32_t{label}; });
  });
  weights_.assign(static_cast<size_t>(classes), 1.0F);
  if (!call.has_input(weight)) return;
  const Elements<float> weights(call.inputs[weight]);
  for (int64_t i = 0; i < classes; ++i) weights_[static_cast<size_t>(i)] = weights[i];
}

int64_t Targets::label(int64_t target) const {
  const int64_t label = raw(target);
  check(label >= 0 && label < classes_, "class index {} is outside the {} classes", label,
        classes_);
  return label;
}

Shape check_operands(const OpView& op, size_t self) {
  const Shape& shape = op.shape(self);
  check(is_floating(op.type(self).dtype), ErrorKind::type,
        "log probabilities must be floating point, not {}", name_of(op.type(self).dtype));
  check(!shape.empty(), ErrorKind::value, "log probabilities need a dimension of classes");
  Shape target = shape;
  target.erase(target.begin() + (shape.size() == 1 ? 0 : 1));
  const TensorType& labels = op.type(self + 1);
  check(is_integral(labels.dtype), ErrorKind::type, "class indices must be integers, not {}",
        name_of(labels.dtype));
  check(labels.shape == target, ErrorKind::value,
        "log probabilities of shape {} need class indices of shape {}, got {}", to_string(shape),
        to_string(target), to_string(labels.shape));
  const int64_t classes = shape.size() == 1 ? shape[0] : shape[1];
  check(!op.has(self + 2) || op.shape(self + 2) == Shape{classes}, ErrorKind::value,
        "there must be one weight for each of the {} classes", classes);
  OperandChecks(op, "a loss of classes").floating(self + 2, "the weight of the classes");
  check_reduction(op.attrs());
  return target;
}

Shape check_gradient_operands(const OpView& op) {
  const Shape target = check_operands(op, 1);
  const OperandChecks operands(op, "the gradient of a loss of classes");
  const bool single = op.attrs().integer("reduction") != none;
  operands.floating(0, "the arriving gradient", single ? Shape{} : target);
  operands.floating(4, "the total weight", {});
  return target;
}

std::vector<Sample> samples(bool spatial) {
  using namespace row_parts;
  std::vector<Sample> all;
  const Shape shape = spatial ? Shape{3, 5, 4, 2} : Shape{7, 5};
  const Shape target = spatial ? Shape{3, 4, 2} : Shape{7};
  for (const int64_t reduction : {none, mean, sum}) {
    for (const int64_t ignored : {-100, 2}) {
      all.push_back({{reals(shape, {-4, 0}), integers(target, {0, 5}),
                      ignored < 0 ? left_out() : reals({5}, {0.5, 2})},
                     {{"reduction", reduction}, {"ignore_index", ignored}}});
    }
  }
  return all;
}

std::vector<Sample> gradient_samples(bool spatial) {
  using namespace row_parts;
  std::vector<Sample> all = samples(spatial);
  for (Sample& one : all) {
    const bool single = one.attrs.integer("reduction") != none;
    one.operands.insert(one.operands.begin(),
                        reals(single ? Shape{} : Shape(one.operands[1].type.shape)));
    one.operands.push_back(reals({}, {3, 9}));
  }
  return all;
}

}  // namespace tessera::class_targets
