// Graphs of one operator or few, drawn at random: a sample of a row of the table with some of its
// types, sizes, operands and attributes changed. Most are wrong in some way. A seed is a graph.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tessera/base/half.h"
#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/registry.h"

namespace tessera {

class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed * 0x9E3779B97F4A7C15ULL + 1) {}

  int64_t below(int64_t count) {
    return static_cast<int64_t>(engine_() % static_cast<uint64_t>(count));
  }
  bool once_in(int64_t count) { return below(count) == 0; }
  template <typename T>
  const T& one_of(const std::vector<T>& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(list.size())))];
  }

  DType dtype() {
    return one_of<DType>(
        {DType::f32, DType::f16, DType::i32, DType::i16, DType::i8, DType::u8, DType::boolean});
  }
  int64_t size() { return one_of<int64_t>({0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 16, 17}); }
  int64_t whole() {
    static const std::vector<int64_t> odd = {-1,
                                             0,
                                             1,
                                             2,
                                             3,
                                             4,
                                             5,
                                             7,
                                             8,
                                             -2,
                                             -3,
                                             -7,
                                             10,
                                             100,
                                             1000,
                                             65536,
                                             -100,
                                             int64_t{1} << 31,
                                             (int64_t{1} << 31) - 1,
                                             -(int64_t{1} << 31),
                                             int64_t{1} << 32,
                                             int64_t{1} << 40,
                                             int64_t{1} << 62,
                                             std::numeric_limits<int64_t>::max(),
                                             std::numeric_limits<int64_t>::min()};
    return once_in(3) ? one_of(odd) : below(9) - 2;
  }
  double number() {
    static const std::vector<double> odd = {0.0,
                                            -0.0,
                                            1.0,
                                            -1.0,
                                            0.5,
                                            2.0,
                                            3.0,
                                            1e-5,
                                            1e-30,
                                            1e-300,
                                            1e30,
                                            -1e30,
                                            1e308,
                                            0.1,
                                            0.9,
                                            1.5,
                                            -7.25,
                                            std::numeric_limits<double>::infinity(),
                                            -std::numeric_limits<double>::infinity(),
                                            std::numeric_limits<double>::quiet_NaN()};
    return one_of(odd);
  }
  Blob bytes_of(size_t count) {
    std::vector<std::byte> data(count);
    for (std::byte& b : data) b = static_cast<std::byte>(below(256));
    return std::make_shared<const std::vector<std::byte>>(std::move(data));
  }

 private:
  std::mt19937_64 engine_;
};

class RandomGraph {
 public:
  // Of that row, or of any where `row` is null. What the rows refuse at once throws their Error.
  RandomGraph(uint64_t seed, const OpDef* row) : draw_(seed), builder_(graph) {
    if (!row) row = any_row();
    const Sample sample = changed(*row, draw_.one_of(row->samples));
    std::vector<ValueId> operands;
    for (const SampleOperand& operand : sample.operands) {
      operands.push_back(operand.present ? value(operand.type) : ValueId{});
    }
    if (!operands.empty() && draw_.once_in(12)) operands.back() = operands.front();
    Node node;
    node.op = row->name;
    node.operands = operands;
    op = row->name;
    check_operand_list(*row, operands);
    const auto results = builder_.add_all(row->name, operands, sample.attrs);
    for (const ValueId result : results) {
      graph.add_output("out" + std::to_string(graph.outputs().size()), more(result));
    }
  }

  Graph graph;
  std::string op;

 private:
  const OpDef* any_row() {
    for (;;) {
      const OpDef* row = draw_.one_of(all_ops());
      if (row->kind != Kind::host) return row;
    }
  }

  // As read_graph() would.
  static void check_operand_list(const OpDef& row, const std::vector<ValueId>& operands) {
    const auto specs = operand_specs(row);
    const bool list = !specs.empty() && specs.back().list;
    check(list || operands.size() <= specs.size(), "too many operands");
    for (size_t i = 0; i < std::max(specs.size(), operands.size()); ++i) {
      const OperandSpec& spec = specs[std::min(i, specs.size() - 1)];
      const bool left_out = i >= operands.size() || !operands[i].valid();
      check(!left_out || spec.optional || (spec.list && i >= operands.size()), "an operand misses");
    }
  }

  Sample changed(const OpDef& row, Sample sample) {
    for (int64_t changes = draw_.below(4); changes > 0; --changes) {
      const bool attribute = !row.attrs.empty() && (sample.operands.empty() || draw_.once_in(2));
      if (attribute) {
        change_attribute(sample.attrs, draw_.one_of(row.attrs));
      } else if (!sample.operands.empty()) {
        change_operands(sample.operands);
      }
    }
    return sample;
  }

  void change_operands(std::vector<SampleOperand>& operands) {
    const auto at = static_cast<size_t>(draw_.below(static_cast<int64_t>(operands.size())));
    SampleOperand& operand = operands[at];
    Shape& shape = operand.type.shape;
    const auto dim = [&] {
      return static_cast<size_t>(draw_.below(static_cast<int64_t>(shape.size())));
    };
    switch (draw_.below(12)) {
      case 0:
      case 1:
      case 2:
        operand.type.dtype = draw_.dtype();
        return;
      case 3:
        for (SampleOperand& each : operands)
          each.type.dtype = operand.type.dtype == DType::f32 ? DType::i32 : operand.type.dtype;
        return;
      case 4:
        operand.present = !operand.present;
        return;
      case 5:
        shape.insert(shape.begin() + draw_.below(static_cast<int64_t>(shape.size()) + 1),
                     draw_.size());
        return;
      case 6:
        if (!shape.empty()) shape.erase(shape.begin() + static_cast<int64_t>(dim()));
        return;
      case 7:
        if (draw_.once_in(2)) {
          operands.pop_back();
        } else {
          operands.push_back(operand);
        }
        return;
      case 8: {
        // The same size in every operand that has it: what belongs together stays together.
        if (shape.empty()) return;
        const int64_t from = shape[dim()], to = draw_.size();
        for (SampleOperand& each : operands)
          std::replace(each.type.shape.begin(), each.type.shape.end(), from, to);
        return;
      }
      case 9:
        std::swap(
            operand,
            operands[static_cast<size_t>(draw_.below(static_cast<int64_t>(operands.size())))]);
        return;
      default:
        if (!shape.empty()) shape[dim()] = draw_.size();
        return;
    }
  }

  void change_attribute(Attrs& attrs, const AttrSpec& spec) {
    if (draw_.once_in(12)) return attrs.erase(spec.name);
    const Attr* old = attrs.find(spec.name);
    if (!old && spec.fallback) old = &*spec.fallback;
    const AttrType type =
        draw_.once_in(20) ? static_cast<AttrType>(draw_.below(attr_type_count)) : spec.type;
    attrs.set(spec.name,
              any_attribute(type, old && type_of(*old) == type ? *old : Attr{}, old != nullptr));
  }

  Attr any_attribute(AttrType type, const Attr& old, bool has_old) {
    switch (type) {
      case AttrType::boolean:
        return draw_.once_in(2);
      case AttrType::integer:
        return draw_.whole();
      case AttrType::number:
        return draw_.number();
      case AttrType::text:
        return changed_text(has_old && type_of(old) == type ? std::get<std::string>(old) : "");
      case AttrType::dtype:
        return draw_.once_in(8) ? draw_.one_of<DType>({DType::i64, DType::f64, DType::bf16})
                                : draw_.dtype();
      case AttrType::integers: {
        auto list = has_old && type_of(old) == type ? std::get<std::vector<int64_t>>(old)
                                                    : std::vector<int64_t>{};
        change_list(list, [&] { return draw_.whole(); });
        return list;
      }
      case AttrType::numbers: {
        auto list = has_old && type_of(old) == type ? std::get<std::vector<double>>(old)
                                                    : std::vector<double>{};
        change_list(list, [&] { return draw_.number(); });
        return list;
      }
      case AttrType::blob:
        return draw_.bytes_of(static_cast<size_t>(draw_.below(40)));
      case AttrType::body: {
        using Body = std::shared_ptr<const FusedBody>;
        const bool known = has_old && type_of(old) == type;
        std::string text = known ? print_body(*std::get<Body>(old)) : "%0 = relu(a0); out %0";
        for (int64_t changes = draw_.below(3); changes >= 0; --changes) {
          text = changed_text(std::move(text));
        }
        return body_attr(parse_body(text));
      }
    }
    return false;
  }

  template <typename T, typename Next>
  void change_list(std::vector<T>& list, const Next& next) {
    const int64_t how = draw_.below(6);
    if (how == 0) {
      list.push_back(next());
    } else if (how == 1 && !list.empty()) {
      list.pop_back();
    } else if (how == 2) {
      list.clear();
    } else if (!list.empty()) {
      list[static_cast<size_t>(draw_.below(static_cast<int64_t>(list.size())))] = next();
    }
  }

  std::string changed_text(std::string text) {
    static const std::vector<std::string> known = {"",     "none",     "mean", "sum",   "tanh",
                                                   "relu", "add",      "max",  "floor", "trunc",
                                                   "ij",   "constant", "f32"};
    if (text.empty() || draw_.once_in(4)) return draw_.one_of(known);
    const auto at = static_cast<size_t>(draw_.below(static_cast<int64_t>(text.size())));
    switch (draw_.below(4)) {
      case 0:
        text.erase(at, 1);
        return text;
      case 1:
        text[at] =
            draw_.one_of<char>({'0', '1', '9', ',', '%', '(', ')', 'a', ' ', '-', '$', ';', '='});
        return text;
      case 2:
        text.insert(at, text.substr(at / 2, 5));
        return text;
      default:
        text.resize(at);
        return text;
    }
  }

  // An input, a state, or a value that the program makes itself: inputs of no elements are refused.
  ValueId value(const TensorType& type) {
    const std::string name = "x" + std::to_string(graph.value_count());
    const bool empty = numel(type.shape) == 0;
    if (empty || draw_.once_in(4)) return made(name, type);
    if (draw_.once_in(4)) return graph.add_state(StateKind::parameter, name, type);
    return graph.add_input(InputKind::data, name, type);
  }

  ValueId made(const std::string& name, const TensorType& type) {
    if (draw_.once_in(4)) {
      return builder_.add("fill", {},
                          {{"shape", type.shape}, {"value", 1.0}, {"dtype", type.dtype}});
    }
    // Every second element of a larger input, or the dimensions in another order.
    Shape whole = type.shape;
    for (int64_t& size : whole) size = std::max<int64_t>(size, 1);
    Strides strides = contiguous_strides(whole);
    if (!whole.empty() && draw_.once_in(2)) {
      whole.back() *= 2;
      strides = contiguous_strides(whole);
      strides.back() = 2;
    } else {
      std::reverse(whole.begin(), whole.end());
      strides = contiguous_strides(whole);
      std::reverse(strides.begin(), strides.end());
    }
    const ValueId input = graph.add_input(InputKind::data, name, {type.dtype, whole});
    return builder_.add("view", {input}, {{"shape", type.shape}, {"strides", strides}});
  }

  // The value, or what some element-wise operators make of it: things to fuse.
  ValueId more(ValueId of) {
    for (int64_t steps = draw_.once_in(3) ? 1 + draw_.below(3) : 0; steps > 0; --steps) {
      of = perhaps_rounded(of);
      const OpDef& row = *draw_.one_of(all_ops());
      if (row.kind != Kind::elementwise && row.kind != Kind::reduction) continue;
      const size_t count = operand_specs(row).size();
      try {
        const auto results =
            builder_.add_all(row.name, std::vector<ValueId>(count, of), row.samples[0].attrs);
        if (!results.empty()) of = results[0];
      } catch (const Error&) {
        continue;
      }
    }
    return of;
  }

  // Through halves: rounded to one and back, or only there, which few rows take.
  ValueId perhaps_rounded(ValueId of) {
    if (graph.type(of).dtype == DType::f16) return builder_.cast(of, DType::f32);
    if (graph.type(of).dtype != DType::f32 || !draw_.once_in(4)) return of;
    const ValueId half = draw_.once_in(3)
                             ? builder_.add("stochastic_cast", {of}, {{"key", draw_.below(99)}})
                             : builder_.cast(of, DType::f16);
    return draw_.once_in(4) ? half : builder_.cast(half, DType::f32);
  }

  Draw draw_;
  Builder builder_;
};

// Memory of that type: values at random, some of them special.
inline std::vector<std::byte> random_values(Draw& draw, const TensorType& type) {
  std::vector<std::byte> memory(static_cast<size_t>(bytes(type)));
  const bool tame = !draw.once_in(4);
  for (int64_t i = 0; i < numel(type.shape); ++i) {
    const auto put = [&](auto x) {
      std::memcpy(memory.data() + i * static_cast<int64_t>(sizeof x), &x, sizeof x);
    };
    const double real = tame || !draw.once_in(10) ? static_cast<double>(draw.below(4001)) / 1000 - 2
                                                  : draw.number();
    const int64_t whole = tame || !draw.once_in(10) ? draw.below(3) : draw.whole();
    switch (type.dtype) {
      case DType::f32:
        put(static_cast<float>(real));
        break;
      case DType::i32:
        put(static_cast<int32_t>(whole));
        break;
      case DType::f16:
        put(to_half(static_cast<float>(real)));
        break;
      case DType::i16:
      case DType::bf16:
        put(static_cast<int16_t>(whole));
        break;
      case DType::boolean:
        put(static_cast<uint8_t>(draw.below(2)));
        break;
      default:
        put(static_cast<int8_t>(whole));
    }
  }
  return memory;
}

}  // namespace tessera
