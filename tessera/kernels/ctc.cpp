#include "tessera/kernels/ctc.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/kernels/copy.h"

namespace tessera::kernels {
namespace {

constexpr double impossible = -std::numeric_limits<double>::infinity();
constexpr double infinity = std::numeric_limits<double>::infinity();

// Differences of logarithms are small numbers, for which float has digits enough; the sums over a
// long sequence are not.
double log_sum(double a, double b, double c = impossible) {
  const double most = std::max({a, b, c});
  if (most == impossible) return most;
  const auto share = [most](double x) { return std::exp(static_cast<float>(x - most)); };
  return most + static_cast<double>(std::log(share(a) + share(b) + share(c)));
}

// One sample: its labels with blanks before, between and behind them.
class Sample {
 public:
  Sample(const float* log_probs, int64_t step_stride, const int32_t* labels, int64_t label_count,
         int64_t time, int64_t blank)
      : log_probs_(log_probs), step_stride_(step_stride), time_(time) {
    symbols_.assign(static_cast<size_t>(2 * label_count + 1), blank);
    for (int64_t i = 0; i < label_count; ++i) symbols_[static_cast<size_t>(2 * i + 1)] = labels[i];
  }

  int64_t time() const { return time_; }
  int64_t size() const { return static_cast<int64_t>(symbols_.size()); }
  int64_t symbol(int64_t s) const { return symbols_[static_cast<size_t>(s)]; }
  double log_prob(int64_t t, int64_t symbol) const {
    return static_cast<double>(log_probs_[t * step_stride_ + symbol]);
  }

  // Logarithms of the probabilities of all beginnings that end in symbol s at time t, row by row.
  std::vector<double> beginnings() const {
    std::vector<double> all(static_cast<size_t>(time_ * size()), impossible);
    for (int64_t t = 0; t < time_; ++t) {
      double* now = all.data() + t * size();
      const double* before = now - size();
      for (int64_t s = 0; s < size(); ++s) {
        if (t == 0) {
          if (s < 2) now[s] = log_prob(0, symbol(s));
          continue;
        }
        const double one = s >= 1 ? before[s - 1] : impossible;
        const double two = can_skip(s) ? before[s - 2] : impossible;
        now[s] = log_sum(before[s], one, two) + log_prob(t, symbol(s));
      }
    }
    return all;
  }

  // The same for the ends that begin in symbol s; from the row of time t + 1 to that of t.
  void step_back(int64_t t, std::vector<double>& ends, std::vector<double>& scratch) const {
    scratch.assign(ends.size(), impossible);
    for (int64_t s = 0; s < size(); ++s) {
      const auto at = static_cast<size_t>(s);
      if (t == time_ - 1) {
        if (s >= size() - 2) scratch[at] = log_prob(t, symbol(s));
        continue;
      }
      const double one = s + 1 < size() ? ends[at + 1] : impossible;
      const double two = s + 2 < size() && can_skip(s + 2) ? ends[at + 2] : impossible;
      scratch[at] = log_sum(ends[at], one, two) + log_prob(t, symbol(s));
    }
    ends.swap(scratch);
  }

  double loss(const std::vector<double>& beginnings) const {
    if (time_ == 0) return size() == 1 ? 0 : infinity;
    const double* last = beginnings.data() + (time_ - 1) * size();
    return -log_sum(last[size() - 1], size() > 1 ? last[size() - 2] : impossible);
  }

 private:
  // Whether symbol s may follow symbol s - 2: a blank between two equal labels must be there.
  bool can_skip(int64_t s) const { return s >= 2 && symbol(s) != symbol(s - 2); }

  const float* log_probs_;
  int64_t step_stride_, time_;
  std::vector<int64_t> symbols_;
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
        blank_(ctc.blank) {
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
    return {log_probs(0, i), size_ * classes_, labels, target_length(i), input_length(i), blank_};
  }

 private:
  int64_t target_length(int64_t i) const { return target_lengths_.as<int32_t>()[i]; }

  Dense log_probs_, targets_, input_lengths_, target_lengths_;
  int64_t time_, size_, classes_, blank_;
  std::vector<int64_t> begins_;  // of each sample's labels
};

void write_gradient(const Batch& batch, int64_t i, bool zero_infinity, float factor, float* grad) {
  const Sample sample = batch.sample(i);
  const std::vector<double> beginnings = sample.beginnings();
  const double loss = sample.loss(beginnings);
  const int64_t classes = batch.classes();
  const auto at_time = [&](int64_t t) { return grad + (t * batch.size() + i) * classes; };
  const int64_t steps = zero_infinity && loss == infinity ? 0 : sample.time();
  for (int64_t t = steps; t < batch.time(); ++t) std::fill_n(at_time(t), classes, 0.0F);

  std::vector<double> ends(static_cast<size_t>(sample.size()), impossible), scratch;
  std::vector<double> through(static_cast<size_t>(classes));  // each class at this time
  for (int64_t t = steps - 1; t >= 0; --t) {
    sample.step_back(t, ends, scratch);
    std::fill(through.begin(), through.end(), impossible);
    for (int64_t s = 0; s < sample.size(); ++s) {
      double& sum = through[static_cast<size_t>(sample.symbol(s))];
      sum = log_sum(sum, beginnings[static_cast<size_t>(t * sample.size() + s)] +
                             ends[static_cast<size_t>(s)]);
    }
    float* to = at_time(t);
    for (int64_t c = 0; c < classes; ++c) {
      const double log_prob = sample.log_prob(t, c);
      // Both halves of `through` contain this step's probability.
      const double share = through[static_cast<size_t>(c)] + loss - log_prob;
      to[c] =
          (std::exp(static_cast<float>(log_prob)) - std::exp(static_cast<float>(share))) * factor;
    }
  }
}

}  // namespace

void ctc_loss(const Ctc& ctc, const TensorView& loss, ThreadPool& pool) {
  const Batch batch(ctc, pool);
  pool.run(batch.size(), [&](int64_t i) {
    const Sample sample = batch.sample(i);
    const double value = sample.loss(sample.beginnings());
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
