#include "tessera/ops/fused_interpreter.h"

#include <algorithm>
#include <cstring>

#include "tessera/base/divided_up.h"
#include "tessera/base/scratch.h"
#include "tessera/kernels/copy.h"

namespace tessera {
namespace {

constexpr int64_t most_block_elements = 1024;
constexpr int64_t blocks_per_piece = 16;  // of parallel work
constexpr int64_t slot_alignment = 64;

int64_t aligned(int64_t bytes) { return rounded_up(bytes, slot_alignment); }

}  // namespace

FusedInterpreter::FusedInterpreter(FusedBody body, std::span<const Geometry> operands)
    : body_(std::move(body)) {
  for (const Geometry& operand : operands) logical_ = broadcast(logical_, operand.shape);
  merge_dimensions(operands);
  cut_into_blocks();
  prepare_steps();
  prepare_results(operands);
}

// Dimensions of one element go; neighbours that all operands walk through evenly become one.
void FusedInterpreter::merge_dimensions(std::span<const Geometry> operands) {
  std::vector<Strides> strides;
  for (const Geometry& operand : operands) {
    strides.push_back(broadcast_strides(operand.shape, operand.strides, logical_));
    operands_.push_back({{}, numel(operand.shape) == 1});
  }
  for (size_t dim = 0; dim < logical_.size(); ++dim) {
    const int64_t size = logical_[dim];
    if (size == 1) continue;
    bool even = !shape_.empty();
    for (size_t i = 0; i < strides.size() && even; ++i) {
      even = operands_[i].strides.back() == strides[i][dim] * size;
    }
    if (even) {
      shape_.back() *= size;
    } else {
      shape_.push_back(size);
    }
    for (size_t i = 0; i < strides.size(); ++i) {
      if (even) operands_[i].strides.pop_back();
      operands_[i].strides.push_back(strides[i][dim]);
    }
  }
}

// In equal parts: no block has a single element unless all have.
void FusedInterpreter::cut_into_blocks() {
  cut_dim_ = shape_.size();
  while (cut_dim_ > 0 && inner_ * shape_[cut_dim_ - 1] <= most_block_elements) {
    inner_ *= shape_[--cut_dim_];
  }
  blocks_ = numel(logical_) > 0 ? 1 : 0;
  block_elements_ = inner_;
  if (cut_dim_ == 0) return;
  --cut_dim_;
  const int64_t size = shape_[cut_dim_];
  cuts_ = divided_up(size, std::max<int64_t>(1, most_block_elements / inner_));
  cut_step_ = divided_up(size, cuts_);
  cuts_ = divided_up(size, cut_step_);
  block_elements_ = inner_ * cut_step_;
  for (size_t dim = 0; dim < cut_dim_; ++dim) blocks_ *= shape_[dim];
  blocks_ *= cuts_;
}

// A step's result takes the place of one that nothing reads any more.
void FusedInterpreter::prepare_steps() {
  const size_t count = body_.steps.size();
  std::vector<size_t> last_use(count, 0);
  for (size_t i = 0; i < count; ++i) {
    last_use[i] = i;
    for (const BodyValue& value : body_.steps[i].arguments) {
      if (value.from == BodyValue::From::step) last_use[value.index] = i;
    }
  }
  for (const BodyResult& result : body_.results) {
    if (result.value.from == BodyValue::From::step) last_use[result.value.index] = count;
  }
  ThreadPool alone(1);
  std::vector<size_t> free;
  for (size_t i = 0; i < count; ++i) {
    const BodyStep& step = body_.steps[i];
    Step ready{row_of(step).cpu, slots_, {}};
    if (free.empty()) {
      ++slots_;
    } else {
      ready.slot = free.back();
      free.pop_back();
    }
    for (const BodyValue& value : step.arguments) {
      std::byte* to = ready.numbers.emplace_back().data();
      if (value.from == BodyValue::From::number) {
        kernels::fill(value.number, {to, value.dtype, {}, {}}, alone);
      }
    }
    steps_.push_back(std::move(ready));
    for (size_t k = 0; k <= i; ++k) {
      if (last_use[k] == i) free.push_back(steps_[k].slot);
    }
  }
}

void FusedInterpreter::prepare_results(std::span<const Geometry> operands) {
  for (size_t i = 0; i < body_.results.size(); ++i) {
    const BodyResult& result = body_.results[i];
    const size_t index = result.value.index;
    if (!result.summed) {
      stored_.push_back({index, i});
      continue;
    }
    Sum sum{i, result.value, -1, contiguous_strides(logical_), sum_attributes(result)};
    if (result.value.from == BodyValue::From::operand) {
      sum.strides = broadcast_strides(operands[index].shape, operands[index].strides, logical_);
    } else {
      sum.workspace_offset = workspace_bytes_;
      stored_.push_back({index, i, workspace_bytes_});
      const auto size = static_cast<int64_t>(size_of(body_.steps[index].dtype));
      workspace_bytes_ += aligned(numel(logical_) * size);
    }
    sums_.push_back(std::move(sum));
  }
}

// What one thread needs for some blocks after each other.
class FusedInterpreter::Range {
 public:
  Range(const FusedInterpreter& body, const KernelCall& call, std::span<std::byte> workspace)
      : body_(body),
        call_(call),
        workspace_(workspace),
        rank_(body.shape_.size()),
        sizes_(rank_),
        begin_(rank_),
        strides_(rank_),
        part_sizes_(rank_ * call.inputs.size()),
        part_strides_(rank_ * call.inputs.size()),
        operands_(call.inputs.size()),
        steps_(body.steps_.size()),
        slot_bytes_(static_cast<size_t>(aligned(body.block_elements_ * 4))),
        memory_(body.slots_ * slot_bytes_),
        alone_(1, call.pool.level()) {}

  void run(int64_t block) {
    place(block);
    for (size_t i = 0; i < operands_.size(); ++i) operands_[i] = part_of(i);
    for (size_t i = 0; i < steps_.size(); ++i) run_step(i);
    // Only now: a result may lie over an operand.
    for (const Stored& stored : body_.stored_) store(stored);
  }

 private:
  void place(int64_t block) {
    std::copy(body_.shape_.begin(), body_.shape_.end(), sizes_.begin());
    std::fill(begin_.begin(), begin_.end(), 0);
    first_ = 0;
    if (rank_ > 0 && body_.blocks_ > 1) {
      const size_t cut = body_.cut_dim_;
      int64_t outer = block / body_.cuts_;
      begin_[cut] = block % body_.cuts_ * body_.cut_step_;
      sizes_[cut] = std::min(body_.cut_step_, body_.shape_[cut] - begin_[cut]);
      first_ = (outer * body_.shape_[cut] + begin_[cut]) * body_.inner_;
      for (size_t dim = cut; dim-- > 0;) {
        begin_[dim] = outer % body_.shape_[dim];
        sizes_[dim] = 1;
        outer /= body_.shape_[dim];
      }
    }
    elements_ = 1;
    for (size_t dim = rank_; dim-- > 0;) {
      strides_[dim] = elements_;
      elements_ *= sizes_[dim];
    }
  }

  // Repeated dimensions stay of size 1, so that a row sees where it has a single number; one of
  // several numbers is none.
  TensorView part_of(size_t i) {
    const Operand& operand = body_.operands_[i];
    const std::span<int64_t> sizes = std::span(part_sizes_).subspan(i * rank_, rank_);
    const std::span<int64_t> strides = std::span(part_strides_).subspan(i * rank_, rank_);
    int64_t offset = 0, elements = 1;
    for (size_t dim = 0; dim < rank_; ++dim) {
      offset += begin_[dim] * operand.strides[dim];
      sizes[dim] = operand.strides[dim] == 0 ? 1 : sizes_[dim];
      strides[dim] = operand.strides[dim];
      elements *= sizes[dim];
    }
    if (elements == 1 && !operand.single) {
      std::copy(sizes_.begin(), sizes_.end(), sizes.begin());
      std::fill(strides.begin(), strides.end(), 0);
    }
    const TensorView& whole = call_.inputs[i];
    return {whole.data + offset * static_cast<int64_t>(size_of(whole.dtype)), whole.dtype, sizes,
            strides};
  }

  void run_step(size_t i) {
    const BodyStep& step = body_.body_.steps[i];
    const Step& ready = body_.steps_[i];
    std::array<TensorView, FusedBody::most_arguments> inputs;
    for (size_t k = 0; k < step.arguments.size(); ++k) {
      const BodyValue& value = step.arguments[k];
      switch (value.from) {
        case BodyValue::From::operand:
          inputs[k] = operands_[value.index];
          break;
        case BodyValue::From::step:
          inputs[k] = steps_[value.index];
          break;
        case BodyValue::From::number:
          inputs[k] = {const_cast<std::byte*>(ready.numbers[k].data()), value.dtype, {}, {}};
          break;
      }
    }
    steps_[i] = {memory_.data() + ready.slot * slot_bytes_, step.dtype, sizes_, strides_};
    ready.run({std::span(inputs).first(step.arguments.size()),
               {&steps_[i], 1},
               step.attrs,
               alone_,
               call_.rng,
               nullptr,
               call_.first_element + first_});
  }

  void store(const Stored& stored) const {
    const TensorView& value = steps_[stored.step];
    const auto size = static_cast<int64_t>(size_of(value.dtype));
    std::byte* to = stored.workspace_offset < 0 ? call_.outputs[stored.output].data
                                                : workspace_.data() + stored.workspace_offset;
    std::memcpy(to + first_ * size, value.data, static_cast<size_t>(elements_ * size));
  }

  const FusedInterpreter& body_;
  const KernelCall& call_;
  const std::span<std::byte> workspace_;
  const size_t rank_;
  ScratchShape sizes_, begin_, strides_;  // of the block
  ScratchShape part_sizes_, part_strides_;
  ScratchVector<TensorView> operands_, steps_;
  const size_t slot_bytes_;
  ScratchVector<std::byte> memory_;
  ThreadPool alone_;
  int64_t first_ = 0, elements_ = 0;
};

void FusedInterpreter::run(const KernelCall& call, std::span<std::byte> workspace) const {
  const int64_t blocks = stored_.empty() ? 0 : blocks_;
  call.pool.run_ranges(blocks, blocks_per_piece, [&](int64_t begin, int64_t end) {
    Range range(*this, call, workspace);
    for (int64_t block = begin; block < end; ++block) range.run(block);
  });
  for (const Sum& sum : sums_) {
    const bool operand = sum.value.from == BodyValue::From::operand;
    const TensorView input =
        operand ? TensorView{call.inputs[sum.value.index].data, call.inputs[sum.value.index].dtype,
                             logical_, sum.strides}
                : TensorView{workspace.data() + sum.workspace_offset,
                             body_.steps[sum.value.index].dtype, logical_, sum.strides};
    sum_row().cpu(
        {{&input, 1}, call.outputs.subspan(sum.output, 1), sum.attrs, call.pool, call.rng});
  }
}

}  // namespace tessera
