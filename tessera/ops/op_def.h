// Everything the project knows about an operator, whatever the device. An operator is one row in
// its family's table; passes ask for kinds and traits, never for names.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/ir/attributes.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/cost.h"
#include "tessera/ops/kernel_call.h"

namespace tessera {

class Builder;

enum class Kind {
  elementwise,    // each result element from the operands' elements at its (broadcast) place
  reduction,      // folds dimensions
  contraction,    // sums of products
  normalization,  // statistics of a region, then element-wise
  pooling,        // windows
  gather,         // reads or writes at places given by an index or a window
  view,           // another geometry over the operand's memory; costs nothing
  source,         // makes a value from attributes alone
  random,         // from the counter-based generator
  update,         // an optimiser's step
  collective,     // of all replicas of a program together
  host,           // PyTorch's own kernel
  composite       // always taken apart into other rows
};

// How capture brings operands of mixed types to one type, as PyTorch does.
enum class Promotion {
  none,
  common,   // PyTorch's result type
  floating  // the same, and integers become f32
};

struct AttrSpec {
  std::string name;
  AttrType type;
  std::optional<Attr> fallback = {};  // the value when left out
  bool optional = false;              // may be left out without a value
  // How large its whole numbers may be, either way. As it is here, rules may multiply two of them.
  int64_t limit = std::numeric_limits<int32_t>::max();
};
using AttrSchema = std::vector<AttrSpec>;

// How an ATen overload calls this operator. `arguments` names ATen's arguments in the order of our
// operands, then after a bar the attributes: `self, other | alpha`. An attribute of another name is
// written `ours=theirs`, a fixed value `ours=#1.0` (also #true, #7, #[], #[0, 1], #text).
// In-place and out= overloads follow from the functional one and are not listed.
struct AtenSpelling {
  std::string overload;  // "add.Tensor"; the default overload has no dot: "relu"
  std::string arguments;
  // Arguments that ATen changes although its schema does not say so, with the result that is their
  // new value: `running_mean=3, running_var=4`.
  std::string hidden_mutations = {};
};

struct Traits {
  Promotion promotion = Promotion::none;
  size_t promote_from = 0;  // operands before this one keep their type (where's condition)
  // (result, operand): that result may be written over that operand's memory.
  std::vector<std::pair<size_t, size_t>> in_place = {};
  // Computes a different value on every step although its operands are equal.
  bool reads_random_state = false;
  // Element-wise, but no step of a fused body: it looks at how many elements there are, or refuses
  // values and has to name its line.
  bool runs_alone = false;
  // Every element of a result is an element of an operand of the same type, as it was, or a number
  // of the attributes: nothing is computed with. Runs on elements of any type, f16 among them.
  bool moves_elements = false;
  // Its kernel stores halves itself, because it must know to what its numbers are rounded.
  bool rounds_to_halves = false;
  // Operands of whose elements the first result consists, as they were or negated, beside zeros:
  // where they are halves in f32, it is too.
  std::vector<size_t> passes_on = {};
  // Operands of which only the type and the shape count.
  std::vector<size_t> shape_only = {};
  // (operand, value): with that operand everywhere `value`, the result is the other operand bit for
  // bit. x * 1 is; x + 0 is not, it turns -0 into 0.
  std::vector<std::pair<size_t, double>> neutral = {};
};

// Types and attributes of one use of an operator, before or without a graph.
class OpView {
 public:
  OpView(std::span<const std::optional<TensorType>> operands, const Attrs& attrs)
      : operands_(operands), attrs_(attrs) {}

  size_t count() const { return operands_.size(); }
  bool has(size_t i) const { return i < operands_.size() && operands_[i].has_value(); }
  const TensorType& type(size_t i) const { return operands_[i].value(); }
  const Shape& shape(size_t i) const { return type(i).shape; }
  const Attrs& attrs() const { return attrs_; }

 private:
  std::span<const std::optional<TensorType>> operands_;
  const Attrs& attrs_;
};

// An example for conformance: values are drawn uniformly from [low, high); integers rounded down.
struct SampleOperand {
  TensorType type;
  double low = -2, high = 2;
  bool present = true;
};
struct Sample {
  std::vector<SampleOperand> operands;
  Attrs attrs = {};
};

struct OpDef {
  std::string name;
  std::string operands;  // "input, weight, bias?": `?` may be left out, `*` any number, last
  std::string results;   // "out, mean, rstd"
  std::string doc;
  Kind kind = Kind::elementwise;
  AttrSchema attrs = {};
  std::vector<AtenSpelling> aten = {};
  Traits traits = {};
  // Shape and type rule; throws Error. May say i64 or f64 as PyTorch would: graphs narrow it.
  std::vector<TensorType> (*infer)(const OpView&) = nullptr;
  Cost (*cost)(const OpView&, std::span<const TensorType> results) = nullptr;
  // The reference kernel: plain, correct on any CPU. Null for views and composites.
  void (*cpu)(const KernelCall&) = nullptr;
  // For composites, and where a simpler form exists: other rows with the same results (a result
  // that nobody may use is not valid()). Empty: stays as it is.
  std::vector<ValueId> (*decompose)(Builder&, const Node&) = nullptr;
  std::vector<Sample> samples = {};
};

std::string_view name_of(Kind kind);

}  // namespace tessera
