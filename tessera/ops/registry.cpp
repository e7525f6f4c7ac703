#include "tessera/ops/registry.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/ops/families.h"
#include "tessera/ops/split_names.h"

namespace tessera {
namespace {

struct Table {
  std::vector<const OpDef*> rows;
  std::unordered_map<std::string_view, const OpDef*> by_name;
  std::unordered_map<std::string_view, AtenMatch> by_aten;

  Table() {
    // An explicit list: self-registering rows of a static library are silently left out by linkers.
    for (const auto family : {families::elementwise(),   families::activation(),
                              families::reduce(),        families::scan(),
                              families::matmul(),        families::conv(),
                              families::norm(),          families::rnn(),
                              families::ctc(),           families::pool(),
                              families::resample(),      families::index(),
                              families::view(),          families::rearrange(),
                              families::random(),        families::loss(),
                              families::nll_loss(),      families::optimizer(),
                              families::special(),       families::order(),
                              families::patches(),       families::window(),
                              families::distance(),      families::margin_loss(),
                              families::embedding_bag(), families::quantize(),
                              families::random_forms(),  families::tensor_product(),
                              families::fused(),         families::host(),
                              families::cross_entropy(), families::contraction_map(),
                              families::guard(),         families::collective(),
                              families::rounding(),      families::of_halves()}) {
      for (const OpDef& row : family) add(row);
    }
  }

  void add(const OpDef& row) {
    rows.push_back(&row);
    TESSERA_INVARIANT(by_name.emplace(row.name, &row).second, "operator '{}' is there twice",
                      row.name);
    for (const AtenSpelling& spelling : row.aten) {
      TESSERA_INVARIANT(by_aten.emplace(spelling.overload, AtenMatch{&row, &spelling}).second,
                        "ATen overload '{}' is spelled twice", spelling.overload);
    }
  }
};

const Table& table() {
  static const Table instance;
  return instance;
}

}  // namespace

const OpDef& families::row_of(std::span<const OpDef> family, std::string_view name) {
  const auto at = std::find_if(family.begin(), family.end(),
                               [&](const OpDef& row) { return row.name == name; });
  TESSERA_INVARIANT(at != family.end(), "there is no row '{}'", name);
  return *at;
}

const std::vector<const OpDef*>& all_ops() { return table().rows; }

const OpDef* find_op(std::string_view name) {
  const auto at = table().by_name.find(name);
  return at == table().by_name.end() ? nullptr : at->second;
}

const OpDef& op(std::string_view name) {
  const OpDef* row = find_op(name);
  TESSERA_INVARIANT(row, "there is no operator '{}'", name);
  return *row;
}

AtenMatch find_aten(std::string_view overload) {
  const auto at = table().by_aten.find(overload);
  return at == table().by_aten.end() ? AtenMatch{} : at->second;
}

std::vector<OperandSpec> operand_specs(const OpDef& op) {
  std::vector<OperandSpec> specs;
  for (std::string name : split_names(op.operands)) {
    OperandSpec spec;
    if (name.ends_with('?')) spec.optional = true;
    if (name.ends_with('*')) spec.list = true;
    if (spec.optional || spec.list) name.pop_back();
    spec.name = std::move(name);
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::elementwise:
      return "elementwise";
    case Kind::reduction:
      return "reduction";
    case Kind::contraction:
      return "contraction";
    case Kind::normalization:
      return "normalization";
    case Kind::pooling:
      return "pooling";
    case Kind::gather:
      return "gather";
    case Kind::view:
      return "view";
    case Kind::source:
      return "source";
    case Kind::random:
      return "random";
    case Kind::update:
      return "update";
    case Kind::collective:
      return "collective";
    case Kind::host:
      return "host";
    case Kind::composite:
      return "composite";
  }
  return "?";
}

}  // namespace tessera
