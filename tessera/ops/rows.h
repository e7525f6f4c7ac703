// Makes rows for operators that are one scalar function applied to every element, and holds the
// type rules that such rows share. A row is then its name, its types, its function and its
// sentence.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/kernels/dispatch.h"
#include "tessera/kernels/elementwise.h"
#include "tessera/ops/op_def.h"
#include "tessera/ops/row_parts.h"

namespace tessera::rows {

using row_parts::Domain;

// The type that operands from `first` on share, which must be one of `types`.
DType common_type(const OpView& op, Types types, size_t first = 0);
// The shape that all operands broadcast to.
Shape common_shape(const OpView& op);

// Samples for `operands` element-wise operands of equal type: plain, broadcast, 0-d, long enough
// for several threads, and one for every further type of the set. A short list of domains repeats
// its last one.
std::vector<Sample> map_samples(Types types, size_t operands, const std::vector<Domain>& domains,
                                const Attrs& attrs);

// "self, other | alpha": ATen's arguments where its names are ours.
std::string same_arguments(const OpDef& row);
OpDef spelled(OpDef row, std::vector<AtenSpelling> aten);
// For operators of which a scalar may stand for the second operand.
OpDef with_scalar(OpDef row);
// With Traits::neutral.
OpDef with_neutral(OpDef row, std::vector<std::pair<size_t, double>> neutral);
// With Traits::passes_on.
OpDef passing_on(OpDef row, std::vector<size_t> operands);

enum class Result { same, boolean };

template <Types types, Result result>
std::vector<TensorType> infer_map(const OpView& op) {
  const DType dtype = common_type(op, types);
  return {{result == Result::boolean ? DType::boolean : dtype, common_shape(op)}};
}

template <int flops>
Cost elementwise_cost(const OpView&, std::span<const TensorType> results) {
  return ElementwiseCost{numel(results[0].shape), flops};
}

// map() with `arity` operands of type In.
template <typename Out, typename In, size_t arity, typename F>
void map_equal_types(const KernelCall& call, const F& f) {
  [&]<size_t... i>(std::index_sequence<i...>) {
    map<Out, std::enable_if_t<(i < arity), In>...>(call.pool, call.inputs, call.outputs[0], f);
  }
  (std::make_index_sequence<arity>{});
}

// The kernel for a function that `make` builds from the attributes.
template <Types types, size_t arity, auto make, Result result>
void run_map(const KernelCall& call) {
  const auto f = make(call.attrs);
  dispatch<types>(call.inputs[0].dtype, [&]<typename T>() {
    using Out = std::conditional_t<result == Result::boolean, bool, T>;
    map_equal_types<Out, T, arity>(call, f);
  });
}

struct MapRow {
  std::string name, operands, doc;
  AttrSchema attrs = {};
  std::vector<Domain> domains = {{}};
  Attrs sample_attrs = {};
  // Instead of what follows from the above.
  std::vector<AtenSpelling> aten = {};
  std::vector<Sample> samples = {};
  decltype(OpDef::infer) infer = nullptr;
  decltype(OpDef::cpu) cpu = nullptr;
};

// An operator of `arity` operands, all of one type. `make(attrs)` gives its function.
template <Types types, int flops, size_t arity, auto make, Result result = Result::same>
OpDef map_row(MapRow row) {
  OpDef def;
  def.name = std::move(row.name);
  def.operands = std::move(row.operands);
  def.results = "out";
  def.doc = std::move(row.doc);
  def.kind = Kind::elementwise;
  def.attrs = std::move(row.attrs);
  def.aten = std::move(row.aten);
  if (def.aten.empty()) def.aten = {{def.name, same_arguments(def)}};
  if (types == Types::floats) def.traits.promotion = Promotion::floating;
  if (types != Types::floats && arity > 1) def.traits.promotion = Promotion::common;
  for (size_t i = 0; i < arity && result == Result::same; ++i)
    def.traits.in_place.push_back({0, i});
  def.infer = row.infer ? row.infer : infer_map<types, result>;
  def.cost = elementwise_cost<flops>;
  def.cpu = row.cpu ? row.cpu : run_map<types, arity, make, result>;
  def.samples = std::move(row.samples);
  if (def.samples.empty()) {
    def.samples = map_samples(types, arity, row.domains, row.sample_attrs);
  }
  return def;
}

// The same for functions without attributes.
template <auto f>
inline constexpr auto without_attrs = [](const Attrs&) { return f; };

template <Types types, int flops, auto f, Result result = Result::same>
OpDef unary(std::string name, std::string doc, Domain domain = {}) {
  return map_row<types, flops, 1, without_attrs<f>, result>(
      {.name = std::move(name), .operands = "self", .doc = std::move(doc), .domains = {domain}});
}

template <Types types, int flops, auto f, Result result = Result::same>
OpDef binary(std::string name, std::string doc, std::vector<Domain> domains = {{}}) {
  return map_row<types, flops, 2, without_attrs<f>, result>({.name = std::move(name),
                                                             .operands = "self, other",
                                                             .doc = std::move(doc),
                                                             .domains = std::move(domains)});
}

// A gradient that needs the arriving gradient and one tensor of the forward.
template <int flops, auto f>
OpDef backward(std::string name, std::string operands, std::string doc) {
  return map_row<Types::floats, flops, 2, without_attrs<f>>(
      {.name = std::move(name), .operands = std::move(operands), .doc = std::move(doc)});
}

}  // namespace tessera::rows
