// Folds dimensions of a tensor. How the work is cut, and so the order in which elements meet,
// follows from the shape alone: neither threads nor strides change a bit of the result.
//
// A Reducer has a type Acc and
//   Acc start() const;
//   void step(Acc&, element, int64_t index) const;   index: row-major over the folded dimensions
//   void join(Acc& left, const Acc& right) const;    right's elements come after left's
#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "tessera/base/divided_up.h"
#include "tessera/base/scratch.h"
#include "tessera/base/tensor_view.h"
#include "tessera/base/thread_pool.h"
#include "tessera/kernels/operand_reader.h"

namespace tessera {

// The input as a matrix. `folds_rows`: one row for each result, folded along the row, for inputs
// whose innermost dimension is folded; otherwise one column for each result.
struct ReducePlan {
  ScratchShape shape, strides;
  int64_t results = 1, folded = 1;
  bool folds_rows = true;
  int64_t results_per_piece = 1, folded_per_piece = 1;

  int64_t result_pieces() const { return divided_up(results, results_per_piece); }
  int64_t folded_pieces() const {  // one even where there is nothing to fold: its start is stored
    return folded == 0 ? 1 : divided_up(folded, folded_per_piece);
  }
};

// `dims` are in range and without repeats; none at all means every dimension.
ReducePlan plan_reduction(const TensorView& input, std::span<const int64_t> dims);

namespace detail {

constexpr int64_t reduce_lanes = 8;      // chains of steps that do not wait for each other
constexpr int64_t reduce_columns = 256;  // results folded side by side

template <typename In, typename Reducer>
typename Reducer::Acc fold_row(const OperandReader& reader, const Reducer& reducer, int64_t row,
                               int64_t begin, int64_t end, int64_t folded) {
  std::array<typename Reducer::Acc, reduce_lanes> lanes;
  lanes.fill(reducer.start());
  alignas(64) std::byte scratch[OperandReader::scratch_bytes];
  for (int64_t at = begin; at < end; at += OperandReader::block) {
    const int64_t count = std::min(OperandReader::block, end - at);
    const auto* in = reader.template read_as<In>(row * folded + at, count, scratch);
    int64_t i = 0;
    for (; i + reduce_lanes <= count; i += reduce_lanes) {
      for (int64_t lane = 0; lane < reduce_lanes; ++lane) {
        reducer.step(lanes[static_cast<size_t>(lane)], in[i + lane], at + i + lane);
      }
    }
    for (int64_t lane = 0; i + lane < count; ++lane) {
      reducer.step(lanes[static_cast<size_t>(lane)], in[i + lane], at + i + lane);
    }
  }
  for (size_t lane = 1; lane < reduce_lanes; ++lane) reducer.join(lanes[0], lanes[lane]);
  return lanes[0];
}

template <typename In, typename Reducer>
void fold_columns(const OperandReader& reader, const Reducer& reducer, const ReducePlan& plan,
                  int64_t column, int64_t count, int64_t begin, int64_t end,
                  typename Reducer::Acc* accs) {
  alignas(64) std::byte scratch[OperandReader::scratch_bytes];
  for (int64_t k = 0; k < count; ++k) accs[k] = reducer.start();
  for (int64_t row = begin; row < end; ++row) {
    const auto* in = reader.template read_as<In>(row * plan.results + column, count, scratch);
    for (int64_t k = 0; k < count; ++k) reducer.step(accs[k], in[k], row);
  }
}

}  // namespace detail

// Calls store(result, acc) once for every result, from any thread.
template <typename In, typename Reducer, typename Store>
void reduce(ThreadPool& pool, const TensorView& input, std::span<const int64_t> dims,
            const Reducer& reducer, const Store& store) {
  expect_elements_of<In>(input.dtype);
  using Acc = typename Reducer::Acc;
  const ReducePlan plan = plan_reduction(input, dims);
  TensorView matrix = input;
  matrix.sizes = plan.shape;
  matrix.strides = plan.strides;
  const OperandReader reader(matrix, plan.shape);
  const int64_t cuts = plan.folded_pieces();
  ScratchVector<Acc> parts(cuts > 1 ? static_cast<size_t>(cuts * plan.results) : 0);

  pool.run(plan.result_pieces() * cuts, [&](int64_t piece) {
    const int64_t cut = piece % cuts;
    const int64_t first = piece / cuts * plan.results_per_piece;
    const int64_t last = std::min(first + plan.results_per_piece, plan.results);
    const int64_t begin = cut * plan.folded_per_piece;
    const int64_t end = std::min(begin + plan.folded_per_piece, plan.folded);
    const auto keep = [&](int64_t result, const Acc& acc) {
      if (cuts == 1) {
        store(result, acc);
      } else {
        parts[static_cast<size_t>(cut * plan.results + result)] = acc;
      }
    };
    if (plan.folds_rows) {
      for (int64_t row = first; row < last; ++row) {
        keep(row, detail::fold_row<In>(reader, reducer, row, begin, end, plan.folded));
      }
      return;
    }
    std::array<Acc, detail::reduce_columns> accs;
    for (int64_t column = first; column < last; column += detail::reduce_columns) {
      const int64_t count = std::min(detail::reduce_columns, last - column);
      detail::fold_columns<In>(reader, reducer, plan, column, count, begin, end, accs.data());
      for (int64_t k = 0; k < count; ++k) keep(column + k, accs[static_cast<size_t>(k)]);
    }
  });

  if (cuts == 1) return;
  for (int64_t result = 0; result < plan.results; ++result) {
    Acc acc = parts[static_cast<size_t>(result)];
    for (int64_t cut = 1; cut < cuts; ++cut) {
      reducer.join(acc, parts[static_cast<size_t>(cut * plan.results + result)]);
    }
    store(result, acc);
  }
}

}  // namespace tessera
