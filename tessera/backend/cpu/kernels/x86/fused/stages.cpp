#include "tessera/backend/cpu/kernels/x86/fused/stages.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "tessera/kernels/copy.h"
#include "tessera/ops/fused_body.h"

namespace tessera::cpu {
namespace {

constexpr int64_t lanes = 8;
constexpr size_t slot_bytes = FusedStages::tile_elements * sizeof(float);

}  // namespace

// Cuts a body. The code of phase p runs before the calls of phase p, those before the code of p
// + 1.
class FusedStages::Builder {
 public:
  Builder(const FusedBody& body, const FusedSpace& space, const std::vector<bool>& called,
          const std::vector<bool>& single)
      : body_(body), space_(space), called_(called), single_(single), phase_(body.steps.size(), 0) {
    for (size_t i = 0; i < body.steps.size(); ++i) {
      for (const BodyValue& value : body.steps[i].arguments) {
        if (value.from != BodyValue::From::step) continue;
        const bool later = called[value.index] && !called[i];
        phase_[i] = std::max(phase_[i], phase_[value.index] + (later ? 1 : 0));
      }
      last_ = std::max(last_, phase_[i] + (called[i] ? 1 : 0));
    }
    find_tile_values();
    give_slots();
  }

  std::vector<Stage> stages() {
    std::vector<Stage> stages;
    for (size_t phase = 0; phase <= last_; ++phase) {
      auto code = code_of(phase);
      if (!code->results.empty() || code->last) stages.push_back({.code = std::move(code)});
      for (size_t i = 0; i < body_.steps.size(); ++i) {
        if (called_[i] && phase_[i] == phase) stages.push_back({.call = call_of(i)});
      }
    }
    return stages;
  }

  size_t slots() const { return slots_; }

 private:
  // An operand or a step.
  using Key = std::pair<BodyValue::From, size_t>;
  struct TileValue {
    size_t made, last_read;  // moments: the code of a phase, then its calls
    size_t slot = 0;
  };

  static Key key_of(const BodyValue& value) { return {value.from, value.index}; }
  static size_t moment_of_code(size_t phase) { return 2 * phase; }
  size_t moment_of(size_t step) const { return 2 * phase_[step] + (called_[step] ? 1 : 0); }

  void read(const BodyValue& value, size_t moment, bool by_call) {
    if (value.from == BodyValue::From::number) return;
    size_t made = moment_of_code(0);
    if (value.from == BodyValue::From::step) {
      made = moment_of(value.index);
      // Within one piece of code a value stays in its register.
      if (made == moment && !by_call) return;
    } else if (!by_call || single_[value.index]) {
      return;
    }
    TileValue& in_tile = tile_.try_emplace(key_of(value), TileValue{made, moment}).first->second;
    in_tile.last_read = std::max(in_tile.last_read, moment);
  }

  void find_tile_values() {
    for (size_t i = 0; i < body_.steps.size(); ++i) {
      for (const BodyValue& value : body_.steps[i].arguments) read(value, moment_of(i), called_[i]);
      if (called_[i]) {
        tile_.try_emplace({BodyValue::From::step, i}, TileValue{moment_of(i), moment_of(i)});
      }
    }
    for (const BodyResult& result : body_.results) {
      read(result.value, moment_of_code(last_), false);
    }
  }

  // A slot is free again after the moment of its value's last reader.
  void give_slots() {
    std::vector<TileValue*> order;
    for (auto& [key, value] : tile_) order.push_back(&value);
    std::stable_sort(order.begin(), order.end(),
                     [](const TileValue* a, const TileValue* b) { return a->made < b->made; });
    std::vector<size_t> busy_until;
    for (TileValue* value : order) {
      const auto at = std::find_if(busy_until.begin(), busy_until.end(),
                                   [&](size_t until) { return until < value->made; });
      value->slot = static_cast<size_t>(at - busy_until.begin());
      if (at == busy_until.end()) busy_until.push_back(0);
      busy_until[value->slot] = value->last_read;
    }
    slots_ = busy_until.size();
  }

  DType dtype_of(const BodyValue& value) const {
    switch (value.from) {
      case BodyValue::From::operand:
        return space_.operands[value.index].dtype;
      case BodyValue::From::step:
        return body_.steps[value.index].dtype;
      case BodyValue::From::number:
        break;
    }
    return value.dtype;
  }

  Place in_tile(const BodyValue& value) const {
    return {Place::In::tile, tile_.at(key_of(value)).slot, dtype_of(value)};
  }

  FusedStream tile_stream(DType dtype) const {
    return {dtype, std::vector<int64_t>(space_.outer.size(), 0), lanes, 1};
  }

  // The value in a piece of code: one of its own steps, or an operand that it is given.
  BodyValue moved(Code& code, const std::vector<size_t>& steps, const BodyValue& value) const {
    if (value.from == BodyValue::From::number) return value;
    const auto own = std::find(steps.begin(), steps.end(), value.index);
    if (value.from == BodyValue::From::step && own != steps.end()) {
      return {BodyValue::From::step, static_cast<size_t>(own - steps.begin())};
    }
    const bool operand = value.from == BodyValue::From::operand;
    const Place place =
        operand ? Place{Place::In::row, value.index, dtype_of(value)} : in_tile(value);
    const auto known = std::find(code.operands.begin(), code.operands.end(), place);
    const auto index = static_cast<size_t>(known - code.operands.begin());
    if (known == code.operands.end()) {
      code.operands.push_back(place);
      code.space.operands.push_back(operand ? space_.operands[value.index]
                                            : tile_stream(place.dtype));
    }
    return {BodyValue::From::operand, index};
  }

  std::unique_ptr<Code> code_of(size_t phase) const {
    auto code = std::make_unique<Code>();
    code->last = phase == last_;
    code->space = space_;
    code->space.operands.clear();
    if (!code->last) {
      code->space.results.clear();
      code->space.sums = FusedSpace::Sums::none;
    }
    std::vector<size_t> steps;
    for (size_t i = 0; i < body_.steps.size(); ++i) {
      if (called_[i] || phase_[i] != phase) continue;
      BodyStep step = body_.steps[i];
      for (BodyValue& value : step.arguments) value = moved(*code, steps, value);
      code->body.steps.push_back(std::move(step));
      steps.push_back(i);
    }
    if (code->last) {
      add_results(*code, steps);
    } else {
      add_tile_results(*code, steps, phase);
    }
    code->numbers = std::move(steps);
    return code;
  }

  void add_results(Code& code, const std::vector<size_t>& steps) const {
    for (size_t i = 0; i < body_.results.size(); ++i) {
      BodyResult result = body_.results[i];
      result.value = moved(code, steps, result.value);
      code.body.results.push_back(std::move(result));
      if (!body_.results[i].summed) {
        code.results.push_back(
            {Place::In::row, code.results.size(), dtype_of(body_.results[i].value)});
      }
    }
  }

  void add_tile_results(Code& code, const std::vector<size_t>& steps, size_t phase) const {
    for (const auto& [key, in_tile_value] : tile_) {
      const BodyValue value{key.first, key.second};
      const bool operand = key.first == BodyValue::From::operand;
      if (in_tile_value.made != moment_of_code(phase)) continue;
      if (!operand && called_[key.second]) continue;
      code.body.results.push_back({moved(code, steps, value)});
      code.results.push_back(in_tile(value));
      code.space.results.push_back(tile_stream(dtype_of(value)));
    }
  }

  std::unique_ptr<const Call> call_of(size_t index) const {
    const BodyStep& step = body_.steps[index];
    auto call = std::make_unique<Call>();
    call->kernel = row_of(step).cpu;
    call->attrs = step.attrs;
    ThreadPool alone(1);
    for (size_t i = 0; i < step.arguments.size(); ++i) {
      const BodyValue& value = step.arguments[i];
      std::byte* number = call->numbers.emplace_back().data();
      if (value.from == BodyValue::From::number) {
        kernels::fill(value.number, {number, value.dtype, {}, {}}, alone);
        call->arguments.push_back({Place::In::number, i, value.dtype});
      } else if (value.from == BodyValue::From::operand && single_[value.index]) {
        call->arguments.push_back({Place::In::row, value.index, dtype_of(value)});
      } else {
        call->arguments.push_back(in_tile(value));
      }
    }
    call->result = in_tile({BodyValue::From::step, index});
    return call;
  }

  const FusedBody& body_;
  const FusedSpace& space_;
  const std::vector<bool>&called_, &single_;
  std::vector<size_t> phase_;  // by step
  size_t last_ = 0;
  std::map<Key, TileValue> tile_;
  size_t slots_ = 0;
};

FusedStages::FusedStages(const FusedBody& body, const FusedSpace& space,
                         const std::vector<bool>& called, const std::vector<bool>& single,
                         CpuLevel level)
    : space_(space), level_(level) {
  Builder builder(body, space, called, single);
  stages_ = builder.stages();
  slots_ = builder.slots();
  for (Stage& stage : stages_) {
    if (stage.code) {
      stage.code->code =
          std::make_unique<FusedCode>(stage.code->body, stage.code->space, stage.code->numbers);
    }
  }
  one_element_ = numel(space.outer) * space.row == 1;
}

FusedStages::Tile::Tile(const FusedStages& stages)
    : stages_(stages), memory_(stages.slots_ * slot_bytes), alone_(1, stages.level_) {
  const int64_t row = std::min(stages.space_.row, tile_elements);
  rows_.resize(std::min(most_rows, static_cast<size_t>(tile_elements / row)));
}

std::byte* FusedStages::Tile::slot(size_t number, size_t row, DType dtype) {
  const size_t offset = row * static_cast<size_t>(elements_) * size_of(dtype);
  return memory_.data() + number * slot_bytes + offset;
}

void FusedStages::Tile::repeat_first(const Place& place) {
  std::byte* first = slot(place.index, 0, place.dtype);
  std::memcpy(first + size_of(place.dtype), first, size_of(place.dtype));
}

void FusedStages::Tile::add(const FusedRow& row) {
  const int64_t elements = row.vectors * lanes + row.tail;
  for (int64_t begin = 0; begin < elements; begin += tile_elements) {
    push(row, begin, std::min(tile_elements, elements - begin));
  }
}

void FusedStages::Tile::push(const FusedRow& row, int64_t begin, int64_t elements) {
  const bool full =
      count_ == rows_.size() || static_cast<int64_t>(count_ + 1) * elements > tile_elements;
  if (count_ > 0 && (full || elements != elements_)) flush();
  elements_ = elements;
  FusedRow& part = rows_[count_++];
  part = row;
  part.vectors = elements / lanes;
  part.tail = elements % lanes;
  if (begin == 0) return;
  const FusedSpace& space = stages_.space_;
  const auto bytes = [&](const FusedStream& stream) {
    return stream.offset_in_row(begin) * static_cast<int64_t>(size_of(stream.dtype));
  };
  for (size_t i = 0; i < space.operands.size(); ++i) part.operands[i] += bytes(space.operands[i]);
  for (size_t i = 0; i < space.results.size(); ++i) part.results[i] += bytes(space.results[i]);
  if (space.element) part.first_element += space.element->offset_in_row(begin);
  if (space.sums != FusedSpace::Sums::columns) return;
  for (double*& sum : part.sums) sum += sum ? begin : 0;
}

void FusedStages::Tile::flush() {
  if (count_ == 0) return;
  for (const Stage& stage : stages_.stages_) {
    if (stage.code) {
      stages_.run(*stage.code, *this);
    } else {
      stages_.run(*stage.call, *this);
    }
  }
  count_ = 0;
}

void FusedStages::run(const Code& code, Tile& tile) const {
  FusedRow row;
  for (size_t i = 0; i < tile.count_; ++i) {
    const FusedRow& whole = tile.rows_[i];
    row.vectors = whole.vectors;
    row.tail = whole.tail;
    row.first_element = whole.first_element;
    row.rounding = whole.rounding;
    for (size_t k = 0; k < code.operands.size(); ++k) {
      const Place& place = code.operands[k];
      row.operands[k] = place.in == Place::In::row ? whole.operands[place.index]
                                                   : tile.slot(place.index, i, place.dtype);
    }
    for (size_t k = 0; k < code.results.size(); ++k) {
      const Place& place = code.results[k];
      row.results[k] = place.in == Place::In::row ? whole.results[place.index]
                                                  : tile.slot(place.index, i, place.dtype);
    }
    if (code.last) row.sums = whole.sums;
    code.code->run(row);
  }
}

// Over all rows at once. A kernel may do something else with a single number: one element of many
// is handed over twice.
void FusedStages::run(const Call& call, Tile& tile) const {
  const int64_t elements = static_cast<int64_t>(tile.count_) * tile.elements_;
  const int64_t count = elements == 1 && !one_element_ ? 2 : elements;
  const int64_t stride = 1;
  std::array<TensorView, FusedBody::most_arguments> arguments;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const Place& place = call.arguments[i];
    switch (place.in) {
      case Place::In::row:
        arguments[i] = {
            const_cast<std::byte*>(tile.rows_[0].operands[place.index]), place.dtype, {}, {}};
        break;
      case Place::In::number:
        arguments[i] = {const_cast<std::byte*>(call.numbers[i].data()), place.dtype, {}, {}};
        break;
      case Place::In::tile:
        if (count > elements) tile.repeat_first(place);
        arguments[i] = {
            tile.slot(place.index, 0, place.dtype), place.dtype, {&count, 1}, {&stride, 1}};
        break;
    }
  }
  const TensorView result{tile.slot(call.result.index, 0, call.result.dtype),
                          call.result.dtype,
                          {&count, 1},
                          {&stride, 1}};
  call.kernel({std::span(arguments).first(call.arguments.size()),
               {&result, 1},
               call.attrs,
               tile.alone_,
               {}});
}

}  // namespace tessera::cpu
