// What every row of the operator table promises, tried on its samples.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "tessera/base/count_allocations_for_test.h"
#include "tessera/base/cpu_level_for_test.h"
#include "tessera/base/error.h"
#include "tessera/base/half.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/registry.h"
#include "tessera/ops/sample_tensors_for_test.h"
#include "tessera/ops/split_names.h"
#include "tessera/ops/use_cost.h"

namespace tessera {
namespace {

using Results = std::vector<std::vector<std::byte>>;

struct RunOptions {
  bool odd = false;
  int threads = 1;
  std::byte filling{0xCD};  // what results hold before; a place never written shows
  // This result is written over that operand.
  std::optional<std::pair<size_t, size_t>> in_place = {};
  bool of_halves = false;              // operands of floats hold halves
  std::optional<size_t> cleared = {};  // this operand is zero
};

void round_to_halves(const TensorView& tensor) {
  if (tensor.dtype != DType::f32) return;
  auto* elements = tensor.as<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) elements[i] = rounded_to_half(elements[i]);
}

class Conformance : public testing::TestWithParam<const OpDef*> {
 protected:
  const OpDef& row() const { return *GetParam(); }

  std::vector<TensorType> result_types(const Sample& sample) const {
    auto out = infer(row(), types_of(sample), completed(row(), sample.attrs));
    for (TensorType& type : out) type.dtype = narrowed(type.dtype);
    return out;
  }

  Results run(const Sample& sample, const RunOptions& how) const {
    const Attrs attrs = completed(row(), sample.attrs);
    std::vector<Tensor> operands = make_operands(sample, how.odd), results;
    for (const TensorType& type : result_types(sample)) {
      results.emplace_back(type, contiguous_strides(type.shape), how.filling);
    }
    std::vector<std::vector<std::byte>> before;
    std::vector<TensorView> inputs = views_of(sample, operands), outputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (how.of_halves) round_to_halves(inputs[i]);
      if (how.cleared == i) std::memset(inputs[i].data, 0, bytes(operands[i].type()));
    }
    for (Tensor& operand : operands) before.push_back(operand.memory());
    for (Tensor& result : results) outputs.push_back(result.view());
    if (how.in_place) outputs[how.in_place->first] = inputs[how.in_place->second];

    ThreadPool pool(how.threads, level_for_test());
    row().cpu({inputs, outputs, attrs, pool, {.seed = 42, .step = 3}});

    Results bits;
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_TRUE(results[i].guards_hold()) << "result " << i << " is written outside its memory";
      const auto* data = outputs[i].data;
      bits.emplace_back(data, data + bytes(results[i].type()));
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      const bool overwritten = how.in_place && how.in_place->second == i;
      EXPECT_TRUE(overwritten || operands[i].memory() == before[i])
          << "operand " << i << " is changed";
    }
    return bits;
  }
};

TEST_P(Conformance, IsComplete) {
  EXPECT_FALSE(row().name.empty());
  EXPECT_FALSE(row().doc.empty());
  EXPECT_FALSE(row().results.empty());
  EXPECT_TRUE(row().infer);
  EXPECT_TRUE(row().cost);
  EXPECT_TRUE(row().cpu || row().decompose || row().kind == Kind::view) << "nothing can run it";
  EXPECT_FALSE(row().samples.empty());
}

TEST_P(Conformance, SpellingsNameItsOperandsAndAttributes) {
  std::set<std::string> attrs;
  for (const AttrSpec& spec : row().attrs) {
    EXPECT_TRUE(attrs.insert(spec.name).second) << spec.name;
    EXPECT_TRUE(!spec.fallback || type_of(*spec.fallback) == spec.type) << spec.name;
  }
  const auto operands = operand_specs(row());
  for (const AtenSpelling& spelling : row().aten) {
    SCOPED_TRACE(spelling.overload + ": " + spelling.arguments);
    const auto halves = split_names(spelling.arguments, '|');
    ASSERT_LE(halves.size(), 2U);
    const auto named = halves.empty() ? std::vector<std::string>{} : split_names(halves[0]);
    EXPECT_LE(named.size(), operands.size());
    for (size_t i = named.size(); i < operands.size(); ++i) {
      EXPECT_TRUE(operands[i].optional || operands[i].list) << operands[i].name << " is not given";
    }
    for (const std::string& name : named) EXPECT_FALSE(name.empty());
    if (halves.size() < 2) continue;
    for (const std::string& attr : split_names(halves[1])) {
      EXPECT_TRUE(attrs.contains(attr.substr(0, attr.find('=')))) << attr;
    }
  }
}

TEST_P(Conformance, RulesHoldForItsSamples) {
  const size_t names = split_names(row().results).size();
  for (size_t i = 0; i < row().samples.size(); ++i) {
    SCOPED_TRACE(fmt::format("sample {}", i));
    const Sample& sample = row().samples[i];
    const Attrs attrs = completed(row(), sample.attrs);
    const auto results = result_types(sample);
    EXPECT_GE(results.size(), 1U);
    if (!row().results.ends_with('*')) {
      EXPECT_LE(results.size(), names);
    }
    const auto operand_types = types_of(sample);
    const double price = work(row().cost(OpView(operand_types, attrs), results));
    EXPECT_TRUE(std::isfinite(price)) << price;
    if (row().kind != Kind::view && numel(results[0].shape) > 0) {
      EXPECT_GT(price, 0);
    }
  }
}

// Where the rule allows it: what no dimension ties to another operand's.
TEST_P(Conformance, CostGrowsWithTheFirstDimensions) {
  for (size_t i = 0; i < row().samples.size(); ++i) {
    SCOPED_TRACE(fmt::format("sample {}", i));
    Sample larger = row().samples[i];
    for (SampleOperand& operand : larger.operands) {
      if (!operand.type.shape.empty()) operand.type.shape[0] *= 2;
    }
    std::vector<TensorType> results;
    try {
      results = result_types(larger);
    } catch (const Error&) {
      continue;
    }
    const auto cost = [&](const Sample& sample) {
      return use_cost(row(), OpView(types_of(sample), completed(row(), sample.attrs)),
                      result_types(sample));
    };
    const UseCost before = cost(row().samples[i]), after = cost(larger);
    EXPECT_GE(work(after.work), work(before.work));
    EXPECT_GE(after.operand_bytes, before.operand_bytes);
    EXPECT_GE(after.result_bytes, before.result_bytes);
  }
}

TEST_P(Conformance, KernelKeepsItsPromises) {
  if (!row().cpu || row().kind == Kind::host) return;  // PyTorch is not here
  for (size_t i = 0; i < row().samples.size(); ++i) {
    SCOPED_TRACE(fmt::format("sample {}", i));
    const Sample& sample = row().samples[i];
    const Results plain = run(sample, {});
    EXPECT_EQ(run(sample, {.filling = std::byte{0x33}}), plain) << "a place is never written";
    EXPECT_EQ(run(sample, {.threads = 3}), plain) << "threads change bits";
    EXPECT_EQ(run(sample, {.odd = true}), plain) << "strides change bits";
    const auto results = result_types(sample);
    for (const auto& pair : row().traits.in_place) {
      if (pair.first >= results.size() || pair.second >= sample.operands.size()) continue;
      const SampleOperand& operand = sample.operands[pair.second];
      if (!operand.present || operand.type != results[pair.first]) continue;
      EXPECT_EQ(run(sample, {.threads = 3, .in_place = pair}), plain)
          << "result " << pair.first << " over operand " << pair.second;
    }
  }
}

TEST_P(Conformance, WhatItPassesOnIsAsItWas) {
  if (row().traits.passes_on.empty()) return;
  for (const Sample& sample : row().samples) {
    if (result_types(sample)[0].dtype != DType::f32) continue;
    const Results results = run(sample, {.of_halves = true});
    std::vector<float> elements(results[0].size() / sizeof(float));
    std::memcpy(elements.data(), results[0].data(), results[0].size());
    for (const float element : elements) EXPECT_EQ(element, rounded_to_half(element));
  }
}

TEST_P(Conformance, WhereOnlyTheShapeCountsValuesDoNot) {
  for (const size_t operand : row().traits.shape_only) {
    for (const Sample& sample : row().samples) {
      EXPECT_EQ(run(sample, {.cleared = operand}), run(sample, {}));
    }
  }
}

// The first calls may fill what a thread keeps for later ones, and a thread may come late. Fused
// bodies are made ready anew by every call of their reference kernel; backends make them ready
// once.
TEST_P(Conformance, KernelAllocatesNothing) {
  if (!row().cpu || row().kind == Kind::host) return;
  const bool interprets = std::any_of(row().attrs.begin(), row().attrs.end(),
                                      [](const AttrSpec& spec) { return spec.name == "body"; });
  if (interprets) return;
  for (size_t i = 0; i < row().samples.size(); ++i) {
    for (const bool odd : {false, true}) {
      SCOPED_TRACE(fmt::format("sample {}, odd strides {}", i, odd));
      const Sample& sample = row().samples[i];
      const Attrs attrs = completed(row(), sample.attrs);
      std::vector<Tensor> operands = make_operands(sample, odd), results;
      for (const TensorType& type : result_types(sample)) {
        results.emplace_back(type, contiguous_strides(type.shape), std::byte{0});
      }
      const std::vector<TensorView> inputs = views_of(sample, operands);
      std::vector<TensorView> outputs;
      for (Tensor& result : results) outputs.push_back(result.view());
      ThreadPool pool(2, level_for_test());
      int64_t fewest = std::numeric_limits<int64_t>::max();
      for (int call = 0; call < 30 && fewest > 0; ++call) {
        const AllocationsSince before;
        row().cpu({inputs, outputs, attrs, pool, {.seed = 42, .step = 3}});
        fewest = std::min(fewest, before.blocks());
      }
      EXPECT_EQ(fewest, 0) << "blocks of memory in every call";
    }
  }
}

TEST_P(Conformance, PartsHaveItsTypes) {
  if (!row().decompose) return;
  for (size_t i = 0; i < row().samples.size(); ++i) {
    SCOPED_TRACE(fmt::format("sample {}", i));
    const Sample& sample = row().samples[i];
    Graph graph;
    Builder builder(graph);
    std::vector<ValueId> operands;
    for (const SampleOperand& operand : sample.operands) {
      operands.push_back(operand.present ? graph.add_input(InputKind::data, "x", operand.type)
                                         : ValueId{});
    }
    const auto results = builder.add_all(row().name, operands, sample.attrs);
    const Node node = graph.nodes().back();
    const auto parts = row().decompose(builder, node);
    if (parts.empty()) continue;
    ASSERT_EQ(parts.size(), results.size());
    for (size_t k = 0; k < parts.size(); ++k) {
      if (!parts[k].valid()) continue;
      EXPECT_EQ(to_string(graph.type(parts[k])), to_string(graph.type(results[k])));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Conformance, testing::ValuesIn(all_ops()),
                         [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace tessera
