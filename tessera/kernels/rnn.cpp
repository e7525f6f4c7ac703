#include "tessera/kernels/rnn.h"

#include <algorithm>

#include "tessera/base/scratch.h"
#include "tessera/kernels/avx2_copy.h"
#include "tessera/kernels/copy.h"
#include "tessera/kernels/gemm.h"
#include "tessera/kernels/vector_math.h"

// The loops over a row work on elements of the same place only: results over the memory of operands
// do no harm to vectors.
#define TESSERA_EACH(j, count) _Pragma("GCC ivdep") for (int64_t j = 0; j < count; ++j)

namespace tessera::kernels {
namespace {

// Rows of the batch that one piece takes from the first step to the last: as many as one product
// has in registers, more where enough pieces are left.
int64_t rows_per_piece(int64_t batch) {
  constexpr int64_t rows = 6, most = 4, wanted_pieces = 8;
  return rows * std::clamp<int64_t>(batch / (rows * wanted_pieces), 1, most);
}

struct Steps {
  int64_t time, batch, hidden;
  bool reverse;

  Steps(const TensorView& sequence, int64_t hidden_size, bool backwards)
      : time(sequence.sizes[0]),
        batch(sequence.sizes[1]),
        hidden(hidden_size),
        reverse(backwards) {}

  // A row of a sequence, counted over time and batch.
  int64_t place(int64_t step, int64_t row) const {
    return (reverse ? time - 1 - step : step) * batch + row;
  }
  // A row of a state before a step, which is the one after the step before.
  const float* before(int64_t step, int64_t row, const float* initial, const float* all) const {
    return step == 0 ? initial + row * hidden : all + place(step - 1, row) * hidden;
  }
};

// A bias that was left out is zero.
class Bias {
 public:
  Bias(const TensorView& tensor, int64_t count, ThreadPool& pool)
      : values_(static_cast<size_t>(count), 0.0F) {
    if (tensor.present) std::copy_n(Dense(tensor, pool).as<float>(), count, values_.begin());
  }
  const float* data() const { return values_.data(); }

 private:
  ScratchVector<float> values_;
};

// A row of an optional tensor.
class OptionalRows {
 public:
  OptionalRows(const TensorView& tensor, int64_t width, ThreadPool& pool)
      : dense_(tensor, pool), width_(width), zeros_(static_cast<size_t>(width), 0.0F) {}
  const float* operator[](int64_t row) const {
    return dense_.view().present ? dense_.as<float>() + row * width_ : zeros_.data();
  }

 private:
  Dense dense_;
  int64_t width_;
  ScratchVector<float> zeros_;
};

// ---- From the first step to the last

// A Cell has `gates`, steps, h0 and output, and works on one row of one step, given the product of
// the row's state with the weights.
template <typename Cell>
[[gnu::always_inline]] inline void walk_forward(const Cell& cell, const PackedColumns& weight,
                                                Range rows) {
  const Steps& steps = cell.steps;
  const int64_t width = Cell::gates * steps.hidden;
  ScratchVector<float> sums(static_cast<size_t>(rows.count() * width));
  for (int64_t step = 0; step < steps.time; ++step) {
    const float* h = steps.before(step, rows.begin, cell.h0.template as<float>(), cell.output);
    weight.multiply(StridedLines(h, steps.hidden, 1), {0, rows.count()}, sums.data(), width);
    for (int64_t i = 0; i < rows.count(); ++i) {
      cell.run(step, rows.begin + i, sums.data() + i * width);
    }
  }
}

// ---- From the last step to the first

// Such a Cell has `gates`, steps, and grad_hidden: the gradients of the products. It turns the
// gradient of a row's state after the step into the part of the state before that does not pass
// the weights.
template <typename Cell>
[[gnu::always_inline]] inline void walk_back(const Cell& cell, const PackedColumns& weight,
                                             Range rows) {
  const Steps& steps = cell.steps;
  const int64_t hidden = steps.hidden, width = Cell::gates * hidden;
  ScratchVector<float> sums(static_cast<size_t>(rows.count() * hidden));
  for (int64_t i = rows.begin; i < rows.end; ++i) cell.begin(i);
  for (int64_t step = steps.time - 1; step >= 0; --step) {
    for (int64_t i = rows.begin; i < rows.end; ++i) cell.run(step, i);
    const float* grad = cell.grad_hidden + steps.place(step, rows.begin) * width;
    weight.multiply(StridedLines(grad, width, 1), {0, rows.count()}, sums.data(), hidden);
    float* dh = cell.dh + rows.begin * hidden;
    const float* through_weights = sums.data();
    const int64_t count = rows.count() * hidden;
    TESSERA_EACH(j, count) dh[j] += through_weights[j];
  }
}

enum class Direction { forward, back };

template <Direction direction, typename Cell>
[[gnu::always_inline]] inline void walk_either(const Cell& cell, const PackedColumns& weight,
                                               Range rows) {
  if constexpr (direction == Direction::forward) {
    walk_forward(cell, weight, rows);
  } else {
    walk_back(cell, weight, rows);
  }
}

template <Direction direction, typename Cell>
void walk_portable(const Cell& cell, const PackedColumns& weight, Range rows) {
  walk_either<direction>(cell, weight, rows);
}

template <Direction direction, typename Cell>
TESSERA_AVX2_COPY void walk_avx2(const Cell& cell, const PackedColumns& weight, Range rows) {
  walk_either<direction>(cell, weight, rows);
}

template <Direction direction, typename Cell>
void walk_all(const Cell& cell, const TensorView& weight, ThreadPool& pool) {
  // States are multiplied with the rows of the weight, gradients of gates with its columns.
  const size_t line = direction == Direction::forward ? 0 : 1;
  const StridedLines lines(weight.as<const float>(), weight.strides[line],
                           weight.strides[1 - line]);
  const PackedColumns packed(lines, weight.sizes[line], weight.sizes[1 - line], pool);
  const auto walk =
      pool.level() >= CpuLevel::avx2 ? walk_avx2<direction, Cell> : walk_portable<direction, Cell>;
  const int64_t rows = rows_per_piece(cell.steps.batch);
  pool.run_ranges(cell.steps.batch, rows, [&](int64_t begin, int64_t end) {
    walk(cell, packed, Range{begin, end});
  });
}

// The state after the last step.
void copy_last(const Steps& steps, const float* all, const TensorView& to) {
  const float* from = all + steps.place(steps.time - 1, 0) * steps.hidden;
  std::copy_n(from, steps.batch * steps.hidden, to.as<float>());
}

// ---- Cells

struct LstmCell {
  static constexpr int64_t gates = 4;
  Steps steps;
  Dense projected, h0, c0;
  Bias bias_ih, bias_hh;
  float *output, *cells, *saved;

  LstmCell(const Lstm& layer, ThreadPool& pool)
      : steps(layer.projected, layer.h0.sizes[1], layer.reverse),
        projected(layer.projected, pool),
        h0(layer.h0, pool),
        c0(layer.c0, pool),
        bias_ih(layer.bias_ih, gates * steps.hidden, pool),
        bias_hh(layer.bias_hh, gates * steps.hidden, pool),
        output(layer.output.as<float>()),
        cells(layer.cells.as<float>()),
        saved(layer.gates.as<float>()) {}

  [[gnu::always_inline]] void run(int64_t step, int64_t row, const float* sums) const {
    const int64_t n = steps.hidden, place = steps.place(step, row);
    const float* p = projected.as<float>() + place * gates * n;
    const float* c_before = steps.before(step, row, c0.as<float>(), cells);
    const float *bi = bias_ih.data(), *bh = bias_hh.data();
    float* to = saved + place * gates * n;
    float* c = cells + place * n;
    float* h = output + place * n;
    TESSERA_EACH(j, n) {
      const float i = sigmoid_of((p[j] + bi[j]) + (sums[j] + bh[j]));
      const float f = sigmoid_of((p[n + j] + bi[n + j]) + (sums[n + j] + bh[n + j]));
      const float g = tanh_of((p[2 * n + j] + bi[2 * n + j]) + (sums[2 * n + j] + bh[2 * n + j]));
      const float o =
          sigmoid_of((p[3 * n + j] + bi[3 * n + j]) + (sums[3 * n + j] + bh[3 * n + j]));
      to[j] = i;
      to[n + j] = f;
      to[2 * n + j] = g;
      to[3 * n + j] = o;
      const float now = f * c_before[j] + i * g;
      c[j] = now;
      h[j] = o * tanh_of(now);
    }
  }
};

struct LstmCellBackward {
  static constexpr int64_t gates = 4;
  Steps steps;
  OptionalRows grad_output, grad_hn, grad_cn;
  Dense c0, cells, saved;
  float *grad_hidden, *dh, *dc;

  LstmCellBackward(const LstmBackward& layer, ThreadPool& pool)
      : steps(layer.cells, layer.cells.sizes[2], layer.reverse),
        grad_output(layer.grad_output, steps.hidden, pool),
        grad_hn(layer.grad_hn, steps.hidden, pool),
        grad_cn(layer.grad_cn, steps.hidden, pool),
        c0(layer.c0, pool),
        cells(layer.cells, pool),
        saved(layer.gates, pool),
        grad_hidden(layer.grad_projected.as<float>()),
        dh(layer.grad_h0.as<float>()),
        dc(layer.grad_c0.as<float>()) {}

  void begin(int64_t row) const {
    std::copy_n(grad_hn[row], steps.hidden, dh + row * steps.hidden);
    std::copy_n(grad_cn[row], steps.hidden, dc + row * steps.hidden);
  }

  [[gnu::always_inline]] void run(int64_t step, int64_t row) const {
    const int64_t n = steps.hidden, place = steps.place(step, row);
    const float* from = saved.as<float>() + place * gates * n;
    const float* c_before = steps.before(step, row, c0.as<float>(), cells.as<float>());
    const float* c = cells.as<float>() + place * n;
    const float* go = grad_output[place];
    float* to = grad_hidden + place * gates * n;
    float* to_h = dh + row * n;
    float* to_c = dc + row * n;
    TESSERA_EACH(j, n) {
      const float i = from[j], f = from[n + j], g = from[2 * n + j], o = from[3 * n + j];
      const float tanh_c = tanh_of(c[j]);
      const float grad_h = to_h[j] + go[j];
      const float grad_c = to_c[j] + grad_h * o * (1 - tanh_c * tanh_c);
      to[j] = grad_c * g * (i * (1 - i));
      to[n + j] = grad_c * c_before[j] * (f * (1 - f));
      to[2 * n + j] = grad_c * i * (1 - g * g);
      to[3 * n + j] = grad_h * tanh_c * (o * (1 - o));
      to_c[j] = grad_c * f;
      to_h[j] = 0;
    }
  }
};

struct GruCell {
  static constexpr int64_t gates = 3;
  Steps steps;
  Dense projected, h0;
  Bias bias_ih, bias_hh;
  float *output, *saved;

  GruCell(const Gru& layer, ThreadPool& pool)
      : steps(layer.projected, layer.h0.sizes[1], layer.reverse),
        projected(layer.projected, pool),
        h0(layer.h0, pool),
        bias_ih(layer.bias_ih, gates * steps.hidden, pool),
        bias_hh(layer.bias_hh, gates * steps.hidden, pool),
        output(layer.output.as<float>()),
        saved(layer.gates.as<float>()) {}

  [[gnu::always_inline]] void run(int64_t step, int64_t row, const float* sums) const {
    const int64_t n = steps.hidden, place = steps.place(step, row);
    const float* p = projected.as<float>() + place * gates * n;
    const float* h_before = steps.before(step, row, h0.as<float>(), output);
    const float *bi = bias_ih.data(), *bh = bias_hh.data();
    float* to = saved + place * 4 * n;
    float* h = output + place * n;
    TESSERA_EACH(j, n) {
      const float r = sigmoid_of((p[j] + bi[j]) + (sums[j] + bh[j]));
      const float z = sigmoid_of((p[n + j] + bi[n + j]) + (sums[n + j] + bh[n + j]));
      const float of_state = sums[2 * n + j] + bh[2 * n + j];
      const float fresh = tanh_of((p[2 * n + j] + bi[2 * n + j]) + r * of_state);
      to[j] = r;
      to[n + j] = z;
      to[2 * n + j] = fresh;
      to[3 * n + j] = of_state;
      h[j] = fresh + z * (h_before[j] - fresh);
    }
  }
};

struct GruCellBackward {
  static constexpr int64_t gates = 3;
  Steps steps;
  OptionalRows grad_output, grad_hn;
  Dense h0, output, saved;
  float *grad_projected, *grad_hidden, *dh;

  GruCellBackward(const GruBackward& layer, ThreadPool& pool)
      : steps(layer.output, layer.output.sizes[2], layer.reverse),
        grad_output(layer.grad_output, steps.hidden, pool),
        grad_hn(layer.grad_hn, steps.hidden, pool),
        h0(layer.h0, pool),
        output(layer.output, pool),
        saved(layer.gates, pool),
        grad_projected(layer.grad_projected.as<float>()),
        grad_hidden(layer.grad_hidden.as<float>()),
        dh(layer.grad_h0.as<float>()) {}

  void begin(int64_t row) const {
    std::copy_n(grad_hn[row], steps.hidden, dh + row * steps.hidden);
  }

  [[gnu::always_inline]] void run(int64_t step, int64_t row) const {
    const int64_t n = steps.hidden, place = steps.place(step, row);
    const float* from = saved.as<float>() + place * 4 * n;
    const float* h_before = steps.before(step, row, h0.as<float>(), output.as<float>());
    const float* go = grad_output[place];
    float* to_p = grad_projected + place * gates * n;
    float* to_s = grad_hidden + place * gates * n;
    float* to_h = dh + row * n;
    TESSERA_EACH(j, n) {
      const float r = from[j], z = from[n + j], fresh = from[2 * n + j];
      const float of_state = from[3 * n + j];
      const float grad_h = to_h[j] + go[j];
      const float grad_new = grad_h * (1 - z) * (1 - fresh * fresh);
      const float grad_r = grad_new * of_state * (r * (1 - r));
      const float grad_z = grad_h * (h_before[j] - fresh) * (z * (1 - z));
      to_p[j] = grad_r;
      to_p[n + j] = grad_z;
      to_p[2 * n + j] = grad_new;
      to_s[j] = grad_r;
      to_s[n + j] = grad_z;
      to_s[2 * n + j] = grad_new * r;
      to_h[j] = grad_h * z;
    }
  }
};

template <bool relu>
struct RnnCell {
  static constexpr int64_t gates = 1;
  Steps steps;
  Dense projected, h0;
  Bias bias_ih, bias_hh;
  float* output;

  RnnCell(const Rnn& layer, ThreadPool& pool)
      : steps(layer.projected, layer.h0.sizes[1], layer.reverse),
        projected(layer.projected, pool),
        h0(layer.h0, pool),
        bias_ih(layer.bias_ih, steps.hidden, pool),
        bias_hh(layer.bias_hh, steps.hidden, pool),
        output(layer.output.as<float>()) {}

  [[gnu::always_inline]] void run(int64_t step, int64_t row, const float* sums) const {
    const int64_t n = steps.hidden, place = steps.place(step, row);
    const float* p = projected.as<float>() + place * n;
    const float *bi = bias_ih.data(), *bh = bias_hh.data();
    float* h = output + place * n;
    TESSERA_EACH(j, n) {
      const float x = (p[j] + bi[j]) + (sums[j] + bh[j]);
      h[j] = relu ? (x < 0 ? 0 : x) : tanh_of(x);
    }
  }
};

template <bool relu>
struct RnnCellBackward {
  static constexpr int64_t gates = 1;
  Steps steps;
  OptionalRows grad_output, grad_hn;
  Dense output;
  float *grad_hidden, *dh;

  RnnCellBackward(const RnnBackward& layer, ThreadPool& pool)
      : steps(layer.output, layer.output.sizes[2], layer.reverse),
        grad_output(layer.grad_output, steps.hidden, pool),
        grad_hn(layer.grad_hn, steps.hidden, pool),
        output(layer.output, pool),
        grad_hidden(layer.grad_projected.as<float>()),
        dh(layer.grad_h0.as<float>()) {}

  void begin(int64_t row) const {
    std::copy_n(grad_hn[row], steps.hidden, dh + row * steps.hidden);
  }

  [[gnu::always_inline]] void run(int64_t step, int64_t row) const {
    const int64_t n = steps.hidden, place = steps.place(step, row);
    const float* h = output.as<float>() + place * n;
    const float* go = grad_output[place];
    float* to = grad_hidden + place * n;
    float* to_h = dh + row * n;
    TESSERA_EACH(j, n) {
      const float grad_h = to_h[j] + go[j];
      to[j] = relu ? (h[j] <= 0 ? 0 : grad_h) : grad_h * (1 - h[j] * h[j]);
      to_h[j] = 0;
    }
  }
};

template <bool relu>
void run_rnn(const Rnn& layer, ThreadPool& pool) {
  const RnnCell<relu> cell(layer, pool);
  walk_all<Direction::forward>(cell, layer.weight, pool);
  copy_last(cell.steps, cell.output, layer.hn);
}

}  // namespace

void lstm(const Lstm& layer, ThreadPool& pool) {
  const LstmCell cell(layer, pool);
  walk_all<Direction::forward>(cell, layer.weight, pool);
  copy_last(cell.steps, cell.output, layer.hn);
  copy_last(cell.steps, cell.cells, layer.cn);
}

void lstm_backward(const LstmBackward& layer, ThreadPool& pool) {
  walk_all<Direction::back>(LstmCellBackward(layer, pool), layer.weight, pool);
}

void gru(const Gru& layer, ThreadPool& pool) {
  const GruCell cell(layer, pool);
  walk_all<Direction::forward>(cell, layer.weight, pool);
  copy_last(cell.steps, cell.output, layer.hn);
}

void gru_backward(const GruBackward& layer, ThreadPool& pool) {
  walk_all<Direction::back>(GruCellBackward(layer, pool), layer.weight, pool);
}

void rnn(const Rnn& layer, ThreadPool& pool) {
  layer.relu ? run_rnn<true>(layer, pool) : run_rnn<false>(layer, pool);
}

void rnn_backward(const RnnBackward& layer, ThreadPool& pool) {
  if (layer.relu) {
    walk_all<Direction::back>(RnnCellBackward<true>(layer, pool), layer.weight, pool);
  } else {
    walk_all<Direction::back>(RnnCellBackward<false>(layer, pool), layer.weight, pool);
  }
}

}  // namespace tessera::kernels
