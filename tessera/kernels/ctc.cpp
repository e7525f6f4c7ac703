#include "tessera/kernels/ctc.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/base/scratch.h"
#include "tessera/kernels/avx2_copy.h"
#include "tessera/kernels/copy.h"
#include "tessera/kernels/vector_math.h"

namespace tessera::kernels {
namespace {

constexpr double impossible = -std::numeric_limits<double>::infinity();
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double lowest = std::numeric_limits<double>::lowest();

// Logarithms of probabilities, one for each symbol, with two impossible ones on either side.
class Row {
 public:
  static constexpr int64_t margin = 2;

  explicit Row(double* data) : data_(data) {}
  double& operator[](int64_t s) const { return data_[margin + s]; }

 private:
  double* data_;
};

// One step through time: to[s] is the sum of from[s], from[s - way] and, where the penalty is not
// infinite, from[s - 2 * way], times the probability of the symbol itself. Differences of
// logarithms are small numbers, for which float has digits enough; what a long sequence adds up to
// is not.
[[gnu::always_inline]] inline void step_through(int64_t size, int64_t way, Row from,
                                                const double* penalty, const double* emitted,
                                                Row to) {
  const double* stay = &from[0];
  const double* one = &from[-way];
  const double* two = &from[-2 * way];
  double* now = &to[0];
#pragma GCC ivdep
  for (int64_t s = 0; s < size; ++s) {
    const double a = stay[s], b = one[s], c = two[s] + penalty[s];
    double most = a > b ? a : b;
    most = most > c ? most : c;
    const double base = most < lowest ? 0 : most;
    const float sum = exp_of(static_cast<float>(a - base)) + exp_of(static_cast<float>(b - base)) +
                      exp_of(static_cast<float>(c - base));
    now[s] = (most + static_cast<double>(log_of(sum))) + emitted[s];
  }
}

using StepThrough = void (*)(int64_t, int64_t, Row, const double*, const double*, Row);

void step_portable(int64_t size, int64_t way, Row from, const double* penalty,
                   const double* emitted, Row to) {
  step_through(size, way, from, penalty, emitted, to);
}

TESSERA_AVX2_COPY void step_avx2(int64_t size, int64_t way, Row from, const double* penalty,
                                 const double* emitted, Row to) {
  step_through(size, way, from, penalty, emitted, to);
}

// One sample: its labels with blanks before, between and behind them.
class Sample {
 public:
  Sample(const float* log_probs, int64_t step_stride, const int32_t* labels, int64_t label_count,
         int64_t time, int64_t blank, CpuLevel level)
      : step_(level >= CpuLevel::avx2 ? step_avx2 : step_portable),
        log_probs_(log_probs),
        step_stride_(step_stride),
        time_(time) {
    symbols_.assign(static_cast<size_t>(2 * label_count + 1), blank);
    for (int64_t i = 0; i < label_count; ++i) symbols_[static_cast<size_t>(2 * i + 1)] = labels[i];
    // A symbol may follow the one before the last, but a blank between equal labels must be there.
    penalties_.assign(symbols_.size() + Row::margin, impossible);
    for (size_t s = 2; s < symbols_.size(); ++s) {
      if (symbols_[s] != symbols_[s - 2]) penalties_[s] = 0;
    }
    emitted_.resize(symbols_.size());
  }

  int64_t time() const { return time_; }
  int64_t size() const { return static_cast<int64_t>(symbols_.size()); }
  int64_t symbol(int64_t s) const { return symbols_[static_cast<size_t>(s)]; }
  double log_prob(int64_t t, int64_t symbol) const {
    return static_cast<double>(log_probs_[t * step_stride_ + symbol]);
  }

  // For all times: of the beginnings that end in a symbol.
  void walk_forward() {
    beginnings_ = empty_rows(time_);
    for (int64_t t = 0; t < time_; ++t) {
      if (t == 0) {
        for (int64_t s = 0; s < std::min<int64_t>(2, size()); ++s) {
          beginning(0)[s] = log_prob(0, symbol(s));
        }
        continue;
      }
      step_(size(), 1, beginning(t - 1), penalties_.data(), emitted(t), beginning(t));
    }
  }

  // Of the ends that begin in a symbol: from those of time t + 1, in `ends`, to those of t.
  void step_back(int64_t t, ScratchVector<double>& ends) {
    ScratchVector<double> before = empty_rows(1);
    before.swap(ends);
    const Row to(ends.data());
    if (t == time_ - 1) {
      for (int64_t s = std::max<int64_t>(0, size() - 2); s < size(); ++s) {
        to[s] = log_prob(t, symbol(s));
      }
      return;
    }
    step_(size(), -1, Row(before.data()), penalties_.data() + 2, emitted(t), to);
  }

  ScratchVector<double> empty_rows(int64_t count) const {
    return ScratchVector<double>(static_cast<size_t>(count * row_size()), impossible);
  }
  Row beginning(int64_t t) { return Row(beginnings_.data() + t * row_size()); }

  // After walk_forward.
  double loss() {
    if (time_ == 0) return size() == 1 ? 0 : infinity;
    const Row last = beginning(time_ - 1);
    const double a = last[size() - 1], b = last[size() - 2];
    const double most = std::max(a, b);
    return most == impossible ? infinity
                              : -(most + std::log(std::exp(a - most) + std::exp(b - most)));
  }

 private:
  int64_t row_size() const { return size() + 2 * Row::margin; }
  const double* emitted(int64_t t) {
    for (int64_t s = 0; s < size(); ++s) {
      emitted_[static_cast<size_t>(s)] = log_prob(t, symbol(s));
    }
    return emitted_.data();
  }

  StepThrough step_;
  const float* log_probs_;
  int64_t step_stride_, time_;
  ScratchVector<int64_t> symbols_;
  ScratchVector<double> penalties_, emitted_, beginnings_;
};

// The operands, dense and checked.
class Batch {
 public:
  Batch(const Ctc& ctc, ThreadPool& pool)
      : log_probs_(ctc.log_probs, pool),
        targets_(ctc.targets, pool),
        input_lengths_(ctc.input_lengths, pool),
        target_lengths_(ctc.target_lengths, pool),
        time_(ctc.log_probs.sizes[0]),
        size_(ctc.log_probs.sizes[1]),
        classes_(ctc.log_probs.sizes[2]),
        blank_(ctc.blank),
        level_(pool.level()) {
    const bool in_rows = ctc.targets.rank() == 2;
    const int64_t labels = ctc.targets.numel();
    int64_t begin = 0;
    for (int64_t i = 0; i < size_; ++i) {
      const int64_t length = target_length(i);
      if (in_rows) begin = i * ctc.targets.sizes[1];
      const int64_t room = in_rows ? ctc.targets.sizes[1] : labels - begin;
      check(input_length(i) >= 0 && input_length(i) <= time_,
            "ctc_loss: input length {} of sample {} is not between 0 and {}, the number of steps",
            input_length(i), i, time_);
      check(length >= 0 && length <= room,
            "ctc_loss: target length {} of sample {} is not between 0 and the {} labels there are",
            length, i, room);
      begins_.push_back(begin);
      begin += length;
    }
  }

  int64_t time() const { return time_; }
  int64_t size() const { return size_; }
  int64_t classes() const { return classes_; }
  int64_t input_length(int64_t i) const { return input_lengths_.as<int32_t>()[i]; }
  const float* log_probs(int64_t t, int64_t i) const {
    return log_probs_.as<float>() + (t * size_ + i) * classes_;
  }

  Sample sample(int64_t i) const {
    const int32_t* labels = targets_.as<int32_t>() + begins_[static_cast<size_t>(i)];
    for (int64_t k = 0; k < target_length(i); ++k) {
      check(labels[k] >= 0 && labels[k] < classes_,
            "ctc_loss: label {} of sample {} is not one of the {} classes", labels[k], i, classes_);
    }
    return {log_probs(0, i), size_ * classes_, labels, target_length(i),
            input_length(i), blank_,           level_};
  }

 private:
  int64_t target_length(int64_t i) const { return target_lengths_.as<int32_t>()[i]; }

  Dense log_probs_, targets_, input_lengths_, target_lengths_;
  int64_t time_, size_, classes_, blank_;
  CpuLevel level_;
  ScratchVector<int64_t> begins_;  // of each sample's labels
};

void write_gradient(const Batch& batch, int64_t i, bool zero_infinity, float factor, float* grad) {
  Sample sample = batch.sample(i);
  sample.walk_forward();
  const double loss = sample.loss();
  const int64_t classes = batch.classes();
  const auto at_time = [&](int64_t t) { return grad + (t * batch.size() + i) * classes; };
  const int64_t steps = zero_infinity && loss == infinity ? 0 : sample.time();
  for (int64_t t = steps; t < batch.time(); ++t) std::fill_n(at_time(t), classes, 0.0F);

  ScratchVector<double> ends = sample.empty_rows(1);
  ScratchVector<float> shares(static_cast<size_t>(classes));  // of the alignments, at this time
  for (int64_t t = steps - 1; t >= 0; --t) {
    sample.step_back(t, ends);
    // No alignment at all: nothing has a share of nothing.
    std::fill(shares.begin(), shares.end(), loss == infinity ? std::nanf("") : 0.0F);
    for (int64_t s = 0; s < sample.size(); ++s) {
      const double both = sample.beginning(t)[s] + Row(ends.data())[s];
      if (both == impossible) continue;
      // Both halves contain this step's probability.
      const int64_t symbol = sample.symbol(s);
      shares[static_cast<size_t>(symbol)] +=
          std::exp(static_cast<float>(both + loss - sample.log_prob(t, symbol)));
    }
    const float* log_probs = batch.log_probs(t, i);
    float* to = at_time(t);
    for (int64_t c = 0; c < classes; ++c) {
      to[c] = (std::exp(log_probs[c]) - shares[static_cast<size_t>(c)]) * factor;
    }
  }
}

}  // namespace

void ctc_loss(const Ctc& ctc, const TensorView& loss, ThreadPool& pool) {
  const Batch batch(ctc, pool);
  pool.run(batch.size(), [&](int64_t i) {
    Sample sample = batch.sample(i);
    sample.walk_forward();
    const double value = sample.loss();
    const bool leave_out = ctc.zero_infinity && value == infinity;
    loss.as<float>()[i] = leave_out ? 0.0F : static_cast<float>(value);
  });
}

void ctc_loss_backward(const Ctc& ctc, const TensorView& grad_loss, const TensorView& grad,
                       ThreadPool& pool) {
  const Batch batch(ctc, pool);
  const Dense factors(grad_loss, pool);
  pool.run(batch.size(), [&](int64_t i) {
    write_gradient(batch, i, ctc.zero_infinity, factors.as<float>()[i], grad.as<float>());
  });
}

}  // namespace tessera::kernels
