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
#include "tessera/ops/builder.h"
#include "tessera/ops/registry.h"
#include "tessera/ops/split_names.h"

namespace tessera {
namespace {

constexpr size_t guard_bytes = 64;
constexpr auto guard = std::byte{0xA5};

// A tensor with guarded memory around it.
class Tensor {
 public:
  Tensor(TensorType type, Strides strides, std::byte filling)
      : type_(std::move(type)), strides_(std::move(strides)) {
    int64_t elements = numel(type_.shape) == 0 ? 0 : 1;
    for (size_t i = 0; i < strides_.size() && elements > 0; ++i) {
      elements += (type_.shape[i] - 1) * strides_[i];
    }
    const size_t size = static_cast<size_t>(elements) * size_of(type_.dtype);
    memory_.assign(size + 2 * guard_bytes, filling);
    std::fill_n(memory_.begin(), guard_bytes, guard);
    std::fill_n(memory_.end() - guard_bytes, guard_bytes, guard);
  }

  TensorView view() {
    return {memory_.data() + guard_bytes, type_.dtype, type_.shape, strides_, true};
  }
  const TensorType& type() const { return type_; }
  const std::vector<std::byte>& memory() const { return memory_; }
  bool guards_hold() const {
    const auto is_guard = [](std::byte b) { return b == guard; };
    return std::all_of(memory_.begin(), memory_.begin() + guard_bytes, is_guard) &&
           std::all_of(memory_.end() - guard_bytes, memory_.end(), is_guard);
  }

 private:
  TensorType type_;
  Strides strides_;
  std::vector<std::byte> memory_;
};

void store(std::byte* to, DType dtype, double value) {
  const auto put = [&](auto x) { std::memcpy(to, &x, sizeof x); };
  switch (dtype) {
    case DType::f32:
      return put(static_cast<float>(value));
    case DType::i32:
      return put(static_cast<int32_t>(std::floor(value)));
    case DType::i16:
      return put(static_cast<int16_t>(std::floor(value)));
    case DType::i8:
      return put(static_cast<int8_t>(std::floor(value)));
    case DType::u8:
      return put(static_cast<uint8_t>(std::floor(value)));
    case DType::boolean:
      return put(static_cast<uint8_t>(std::floor(value) != 0));
    default:
      FAIL() << "samples of type " << name_of(dtype) << " cannot be made";
  }
}

// The sample's values, the same for any strides.
Tensor make_operand(const SampleOperand& sample, size_t number, const Strides& strides) {
  Tensor tensor(sample.type, strides, std::byte{0xFF});
  const Shape& shape = sample.type.shape;
  const TensorView view = tensor.view();
  for (int64_t i = 0; i < numel(shape); ++i) {
    int64_t offset = 0;
    for (size_t d = shape.size(), left = static_cast<size_t>(i); d-- > 0;) {
      offset += static_cast<int64_t>(left) % shape[d] * strides[d];
      left /= static_cast<size_t>(shape[d]);
    }
    const auto words = random_words({.seed = 7, .step = 0}, number, static_cast<uint64_t>(i));
    const double u = static_cast<double>(uniform_from_word(words[0]));
    store(view.data + offset * static_cast<int64_t>(size_of(view.dtype)), view.dtype,
          sample.low + u * (sample.high - sample.low));
  }
  return tensor;
}

// Dimensions in reverse order in memory, and a gap after every element.
Strides odd_strides(const Shape& shape) {
  Strides strides;
  int64_t stride = 2;
  for (const int64_t size : shape) {
    strides.push_back(stride);
    stride *= std::max<int64_t>(size, 1);
  }
  return strides;
}

using Results = std::vector<std::vector<std::byte>>;

struct RunOptions {
  bool odd = false;
  int threads = 1;
  std::byte filling{0xCD};  // what results hold before; a place never written shows
  // This result is written over that operand.
  std::optional<std::pair<size_t, size_t>> in_place = {};
};

class Conformance : public testing::TestWithParam<const OpDef*> {
 protected:
  const OpDef& row() const { return *GetParam(); }

  static std::vector<std::optional<TensorType>> types(const Sample& sample) {
    std::vector<std::optional<TensorType>> out;
    for (const SampleOperand& operand : sample.operands) {
      out.push_back(operand.present ? std::optional(operand.type) : std::nullopt);
    }
    return out;
  }

  std::vector<TensorType> result_types(const Sample& sample) const {
    auto out = infer(row(), types(sample), completed(row(), sample.attrs));
    for (TensorType& type : out) type.dtype = narrowed(type.dtype);
    return out;
  }

  static std::vector<Tensor> make_operands(const Sample& sample, bool odd) {
    std::vector<Tensor> operands;
    for (size_t i = 0; i < sample.operands.size(); ++i) {
      const Shape& shape = sample.operands[i].type.shape;
      operands.push_back(make_operand(sample.operands[i], i,
                                      odd ? odd_strides(shape) : contiguous_strides(shape)));
    }
    return operands;
  }

  static std::vector<TensorView> views_of(const Sample& sample, std::vector<Tensor>& operands) {
    std::vector<TensorView> views;
    for (size_t i = 0; i < operands.size(); ++i) {
      views.push_back(operands[i].view());
      views.back().present = sample.operands[i].present;
    }
    return views;
  }

  Results run(const Sample& sample, const RunOptions& how) const {
    const Attrs attrs = completed(row(), sample.attrs);
    std::vector<Tensor> operands = make_operands(sample, how.odd), results;
    for (const TensorType& type : result_types(sample)) {
      results.emplace_back(type, contiguous_strides(type.shape), how.filling);
    }
    std::vector<std::vector<std::byte>> before;
    std::vector<TensorView> inputs = views_of(sample, operands), outputs;
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
    const auto operand_types = types(sample);
    const double price = work(row().cost(OpView(operand_types, attrs), results));
    EXPECT_TRUE(std::isfinite(price)) << price;
    if (row().kind != Kind::view && numel(results[0].shape) > 0) {
      EXPECT_GT(price, 0);
    }
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

// The first calls may fill what a thread keeps for later ones, and a thread may come late. Fused
// bodies are read anew by every call of their reference kernel, which only interprets them where no
// code can be generated.
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
