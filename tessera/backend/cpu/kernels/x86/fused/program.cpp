#include "tessera/backend/cpu/kernels/x86/fused/program.h"

#include <algorithm>

#include "tessera/base/divided_up.h"

namespace tessera::cpu {
namespace {

constexpr int64_t piece_elements = 16384;
constexpr int64_t most_folded_cuts = 64;  // each needs sums of its own
constexpr int64_t enough_pieces = 32;     // to keep threads busy without cutting what is summed
constexpr int64_t column_step = 1024;     // sums of so many columns stay in the first cache
constexpr int64_t farthest = int64_t{1} << 26;  // strides within a row fit into instructions

// Walks through outer dimensions [first, last) row by row and keeps all streams' offsets.
class Odometer {
 public:
  Odometer(const FusedSpace& space, size_t first, size_t last, int64_t start)
      : space_(space), first_(first), last_(last) {
    std::fill_n(operands.begin(), space.operands.size(), 0);
    std::fill_n(results.begin(), space.results.size(), 0);
    if (space.element) elements = &*space.element;
    for (size_t dim = last; dim-- > first;) {
      index_[dim] = start % space.outer[dim];
      start /= space.outer[dim];
      for (size_t i = 0; i < space.operands.size(); ++i) {
        operands[i] += index_[dim] * space.operands[i].strides[dim];
      }
      for (size_t i = 0; i < space.results.size(); ++i) {
        results[i] += index_[dim] * space.results[i].strides[dim];
      }
      if (elements) element += index_[dim] * elements->strides[dim];
    }
  }

  void next() {
    for (size_t dim = last_; dim-- > first_;) {
      const bool wraps = ++index_[dim] == space_.outer[dim];
      move(dim, wraps ? 1 - space_.outer[dim] : 1);
      if (!wraps) return;
      index_[dim] = 0;
    }
  }

  // Of as many as there are.
  std::array<int64_t, FusedProgram::most_operands> operands;
  std::array<int64_t, FusedRow::most_results> results;
  int64_t element = 0;  // its row-major number, where that is asked

 private:
  void move(size_t dim, int64_t steps) {
    if (elements) element += steps * elements->strides[dim];
    for (size_t i = 0; i < space_.operands.size(); ++i) {
      operands[i] += steps * space_.operands[i].strides[dim];
    }
    for (size_t i = 0; i < space_.results.size(); ++i) {
      results[i] += steps * space_.results[i].strides[dim];
    }
  }

  const FusedSpace& space_;
  const FusedStream* elements = nullptr;
  const size_t first_, last_;
  std::array<int64_t, 8> index_{};
};

bool within_reach(const FusedStream& stream) {
  return stream.vector_stride < farthest && stream.lane_stride < farthest;
}

// The steps without instructions: kernels of their rows are called.
std::vector<bool> called_steps(const FusedBody& body, const KernelUse& use) {
  std::vector<DType> operands;
  for (const KernelOperand& operand : use.inputs) operands.push_back(operand.dtype);
  std::vector<bool> called;
  for (const BodyStep& step : body.steps) {
    called.push_back(!find_instruction(step, argument_types(body, step, operands)));
  }
  return called;
}

bool is_any(const std::vector<bool>& called) {
  return std::find(called.begin(), called.end(), true) != called.end();
}

bool has_types(const FusedBody& body, const KernelUse& use) {
  for (const BodyStep& step : body.steps) {
    if (!has_vectors_of(step.dtype)) return false;
    for (const BodyValue& value : step.arguments) {
      if (value.from == BodyValue::From::number && !has_vectors_of(value.dtype)) return false;
    }
  }
  return std::all_of(body.results.begin(), body.results.end(), [&](const BodyResult& result) {
    const bool step = result.value.from == BodyValue::From::step;
    const size_t index = result.value.index;
    return !result.summed ||
           (step ? body.steps[index].dtype : use.inputs[index].dtype) == DType::f32;
  });
}

bool has_room(const FusedBody& body, const FusedSpace& space) {
  constexpr size_t most_steps = 64;
  const size_t sums = body.results.size() - space.results.size();
  return body.steps.size() <= most_steps && space.operands.size() <= FusedProgram::most_operands &&
         space.results.size() <= FusedRow::most_results && sums <= FusedRow::most_sums &&
         body.steps.size() + space.operands.size() < FusedEmitter::most_values;
}

bool has_streams(const FusedSpace& space) {
  return std::all_of(space.operands.begin(), space.operands.end(), [](const FusedStream& stream) {
    // Truth values are bytes: only whole vectors of them, or one vector for the row.
    const bool bytes = stream.dtype == DType::boolean;
    return within_reach(stream) && (!bytes || stream.dense() || stream.constant_in_row());
  });
}

}  // namespace

std::unique_ptr<FusedProgram> FusedProgram::make(FusedBody body, const KernelUse& use) {
  return make(std::move(body), use, true);
}

std::unique_ptr<FusedProgram> FusedProgram::make_for_boxes(FusedBody body, const KernelUse& use) {
  return make(std::move(body), use, false);
}

bool FusedProgram::fits(const FusedBody& body, const KernelUse& use) {
  return space_for(body, use, true).has_value();
}

// None where the body cannot run in it.
std::optional<FusedSpace> FusedProgram::space_for(const FusedBody& body, const KernelUse& use,
                                                  bool merged) {
  if (use.inputs.empty() || !has_types(body, use)) return std::nullopt;
  if (!merged && is_any(called_steps(body, use))) return std::nullopt;
  auto space = fused_space(body, use, merged);
  if (!space || !has_room(body, *space) || !has_streams(*space)) return std::nullopt;
  return space;
}

std::unique_ptr<FusedProgram> FusedProgram::make(FusedBody body, const KernelUse& use,
                                                 bool merged) {
  auto space = space_for(body, use, merged);
  if (!space) return nullptr;
  return std::unique_ptr<FusedProgram>(new FusedProgram(std::move(body), *std::move(space), use));
}

FusedProgram::FusedProgram(FusedBody body, FusedSpace space, const KernelUse& use)
    : body_(std::move(body)), space_(std::move(space)) {
  const std::vector<bool> called = called_steps(body_, use);
  if (is_any(called)) {
    std::vector<bool> single;
    for (const KernelOperand& operand : use.inputs) {
      single.push_back(numel(operand.geometry.shape) == 1);
    }
    stages_ = std::make_unique<FusedStages>(body_, space_, called, single, use.target.level);
  } else {
    code_ = std::make_unique<FusedCode>(body_, space_);
  }
  for (size_t i = 0; i < body_.results.size(); ++i) {
    (body_.results[i].summed ? sum_results_ : plain_results_).push_back(i);
  }
  for (size_t i = 0; i < body_.steps.size(); ++i) {
    if (row_of(body_.steps[i]).traits.reads_random_state) random_steps_.push_back(i);
  }
  for (size_t i = 0; i < space_.outer.size(); ++i) {
    (i < space_.kept ? kept_rows_ : folded_rows_) *= space_.outer[i];
  }
  cut();
}

void FusedProgram::set_roundings(Roundings& roundings, const RngState& rng) const {
  for (const size_t step : random_steps_) {
    const auto key = static_cast<uint64_t>(body_.steps[step].attrs.integer("key"));
    roundings[step] = rounding_stream(rng, key);
  }
}

bool FusedProgram::folds_rows() const {
  return space_.sums == FusedSpace::Sums::row || space_.sums == FusedSpace::Sums::lanes;
}

void FusedProgram::cut() {
  row_step_ = space_.row;
  folded_step_ = folded_rows_;
  if (space_.sums == FusedSpace::Sums::none) {
    row_step_ = std::min(space_.row, piece_elements);
    kept_step_ = std::max<int64_t>(1, piece_elements / row_step_);
  } else if (folds_rows()) {
    sum_unit_ = space_.sums == FusedSpace::Sums::lanes ? 8 : 1;
    const int64_t elements = folded_rows_ * space_.row;  // of one kept row
    kept_step_ = std::max<int64_t>(1, piece_elements / elements);
    if (kept_rows_ < enough_pieces && elements > piece_elements) {
      const int64_t wanted = std::min(divided_up(elements, piece_elements), most_folded_cuts);
      folded_step_ = std::max<int64_t>(1, folded_rows_ / wanted);
      const int64_t row_cuts = divided_up(wanted, divided_up(folded_rows_, folded_step_));
      if (row_cuts > 1) row_step_ = aligned(divided_up(space_.row, row_cuts));
    }
  } else {
    sum_unit_ = rounded_up(space_.row, 8);
    row_step_ = std::min(space_.row, column_step);
    const int64_t pieces = kept_rows_ * divided_up(space_.row, row_step_);
    if (pieces < enough_pieces) {
      const int64_t wanted =
          std::min(divided_up(folded_rows_ * row_step_, piece_elements), most_folded_cuts);
      folded_step_ = divided_up(folded_rows_, wanted);
    }
  }
  kept_cuts_ = divided_up(kept_rows_, kept_step_);
  folded_cuts_ = divided_up(folded_rows_, folded_step_);
  row_cuts_ = divided_up(space_.row, row_step_);
}

int64_t FusedProgram::workspace_bytes() const {
  const int64_t parts = folds_rows() ? folded_cuts_ * row_cuts_ : folded_cuts_;
  return parts * static_cast<int64_t>(sum_count() * sizeof(double)) * kept_rows_ * sum_unit_;
}

double* FusedProgram::sum_at(double* sums, int64_t part, size_t sum, int64_t kept_row) const {
  const int64_t whole = part * static_cast<int64_t>(sum_count()) + static_cast<int64_t>(sum);
  return sums + (whole * kept_rows_ + kept_row) * sum_unit_;
}

void FusedProgram::run(int64_t piece, std::span<const TensorView> operands,
                       std::span<const TensorView> results, const RngState& rng,
                       double* sums) const {
  Roundings roundings;  // rows point to them until the last tile has run
  set_roundings(roundings, rng);
  if (code_) {
    return for_each_row(piece, operands, results, roundings, sums,
                        [&](const FusedRow& row) { code_->run(row); });
  }
  FusedStages::Tile tile(*stages_);
  for_each_row(piece, operands, results, roundings, sums,
               [&](const FusedRow& row) { tile.add(row); });
  tile.flush();
}

template <typename Run>
void FusedProgram::for_each_row(int64_t piece, std::span<const TensorView> operands,
                                std::span<const TensorView> results, const Roundings& roundings,
                                double* sums, const Run& run) const {
  const int64_t row_cut = piece % row_cuts_;
  const int64_t folded_cut = piece / row_cuts_ % folded_cuts_;
  const int64_t kept_begin = piece / row_cuts_ / folded_cuts_ * kept_step_;
  const int64_t kept_end = std::min(kept_begin + kept_step_, kept_rows_);
  const int64_t folded_begin = folded_cut * folded_step_;
  const int64_t folded_end = std::min(folded_begin + folded_step_, folded_rows_);
  const int64_t row_begin = row_cut * row_step_;
  const int64_t elements = std::min(row_step_, space_.row - row_begin);
  const int64_t part = folds_rows() ? folded_cut * row_cuts_ + row_cut : folded_cut;

  FusedRow row;
  row.rounding = roundings.data();
  row.vectors = elements / 8;
  row.tail = elements % 8;
  Odometer kept(space_, 0, space_.kept, kept_begin);
  for (int64_t k = kept_begin; k < kept_end; ++k, kept.next()) {
    for (size_t i = 0; i < sum_count(); ++i) {
      row.sums[i] = sum_at(sums, part, i, k) + (folds_rows() ? 0 : row_begin);
      std::fill_n(row.sums[i], folds_rows() ? sum_unit_ : rounded_up(elements, 8), 0.0);
    }
    Odometer folded(space_, space_.kept, space_.outer.size(), folded_begin);
    for (int64_t f = folded_begin; f < folded_end; ++f, folded.next()) {
      for (size_t i = 0; i < space_.operands.size(); ++i) {
        const FusedStream& stream = space_.operands[i];
        const int64_t at = kept.operands[i] + folded.operands[i] + stream.offset_in_row(row_begin);
        row.operands[i] = operands[i].data + at * static_cast<int64_t>(size_of(stream.dtype));
      }
      for (size_t i = 0; i < space_.results.size(); ++i) {
        const FusedStream& stream = space_.results[i];
        const int64_t at = kept.results[i] + folded.results[i] + stream.offset_in_row(row_begin);
        row.results[i] =
            results[plain_results_[i]].data + at * static_cast<int64_t>(size_of(stream.dtype));
      }
      if (space_.element) {
        row.first_element =
            kept.element + folded.element + space_.element->offset_in_row(row_begin);
      }
      run(row);
    }
  }
}

// Inner dimensions that the box has all of become part of its rows where they are even.
void FusedProgram::run(const Box& box, std::span<const TensorView> operands,
                       std::span<const TensorView> results, const RngState& rng) const {
  const size_t rank = space_.outer.size();
  size_t outer = rank;  // dimensions before it are walked through
  const int64_t lane_dim = space_.grouped ? 8 : 1;
  int64_t begin = box.begin[rank], elements = (box.end[rank] - begin) * lane_dim;
  bool whole = elements == space_.row;
  int64_t row_dim = -1;  // the dimension whose beginning is the row's
  while (outer > 0 && whole && space_.even[outer - 1]) {
    --outer;
    elements *= box.end[outer] - box.begin[outer];
    row_dim = static_cast<int64_t>(outer);
    whole = box.end[outer] - box.begin[outer] == space_.outer[outer];
  }
  const auto offset = [&](const FusedStream& stream, const auto& index) {
    int64_t at = 0;
    for (size_t dim = 0; dim < outer; ++dim) at += index[dim] * stream.strides[dim];
    if (row_dim >= 0) {
      at += box.begin[outer] * stream.strides[outer];
    } else {
      at += begin * (space_.grouped ? stream.vector_stride : stream.lane_stride);
    }
    return at;
  };
  const auto bytes = [&](const FusedStream& stream, const auto& index) {
    return offset(stream, index) * static_cast<int64_t>(size_of(stream.dtype));
  };

  Roundings roundings;
  set_roundings(roundings, rng);
  FusedRow row;
  row.rounding = roundings.data();
  row.vectors = elements / 8;
  row.tail = elements % 8;
  if (elements <= 0) return;
  auto index = box.begin;
  const float* room = box.room;  // row after row of the box
  for (bool more = true; more;) {
    if (box.room) {
      row.operands[0] = reinterpret_cast<const std::byte*>(room);
      room += elements;
    }
    for (size_t i = box.room ? 1 : 0; i < space_.operands.size(); ++i) {
      row.operands[i] = operands[i].data + bytes(space_.operands[i], index);
    }
    for (size_t i = 0; i < space_.results.size(); ++i) {
      row.results[i] = results[plain_results_[i]].data + bytes(space_.results[i], index);
    }
    if (space_.element) row.first_element = offset(*space_.element, index);
    code_->run(row);
    more = false;
    for (size_t dim = outer; dim-- > 0 && !more;) {
      more = ++index[dim] < box.end[dim];
      if (!more) index[dim] = box.begin[dim];
    }
  }
}

void FusedProgram::finish(int64_t begin, int64_t end, std::span<const TensorView> results,
                          const double* sums) const {
  const int64_t parts = folds_rows() ? folded_cuts_ * row_cuts_ : folded_cuts_;
  const int64_t elements =
      space_.sums == FusedSpace::Sums::columns ? space_.row : sum_unit_;  // without padding
  for (int64_t k = begin; k < end; ++k) {
    int64_t offset = 0, left = k;
    for (size_t dim = space_.kept; dim-- > 0;) {
      offset += left % space_.outer[dim] * space_.sum.strides[dim];
      left /= space_.outer[dim];
    }
    for (size_t i = 0; i < sum_count(); ++i) {
      float* to = results[sum_results_[i]].as<float>() + offset;
      for (int64_t element = 0; element < elements; ++element) {
        double sum = 0;
        for (int64_t part = 0; part < parts; ++part) {
          sum += sum_at(const_cast<double*>(sums), part, i, k)[element];
        }
        to[element] = static_cast<float>(sum);
      }
    }
  }
}

}  // namespace tessera::cpu
