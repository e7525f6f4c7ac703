#include "tessera/kernels/norm.h"

#include <algorithm>
#include <cmath>

#include "tessera/base/scratch.h"
#include "tessera/kernels/copy.h"

namespace tessera::kernels {
namespace {

constexpr int64_t piece_elements = 16384;

int64_t grain_for(int64_t elements) {
  return std::max<int64_t>(1, piece_elements / std::max<int64_t>(1, elements));
}

// Sums term(i) for i below count in double precision; several running sums let compilers vectorise.
template <typename Term>
double sum_terms(int64_t count, const Term& term) {
  constexpr int64_t lanes = 8;
  double sums[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (int64_t j = 0; j < lanes; ++j) sums[j] += term(i + j);
  }
  for (; i < count; ++i) sums[i % lanes] += term(i);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

double sum_of(const float* x, int64_t count) {
  return sum_terms(count, [x](int64_t i) { return static_cast<double>(x[i]); });
}

double sum_of_squares(const float* x, int64_t count, double mean) {
  return sum_terms(count, [x, mean](int64_t i) {
    const double d = x[i] - mean;
    return d * d;
  });
}

double sum_of_products(const float* a, const float* x, int64_t count, double mean) {
  return sum_terms(count, [a, x, mean](int64_t i) { return a[i] * (x[i] - mean); });
}

// One value for each channel, or a constant where the tensor was left out.
class PerChannel {
 public:
  PerChannel(const TensorView& tensor, float otherwise, ThreadPool& pool)
      : dense_(tensor, pool),
        values_(tensor.present ? dense_.as<float>() : nullptr),
        otherwise_(otherwise) {}
  float operator[](int64_t i) const { return values_ ? values_[i] : otherwise_; }

 private:
  Dense dense_;
  const float* values_;
  float otherwise_;
};

// [batch, channels, ...] as three sizes.
struct Planes {
  int64_t batch, channels, size;

  explicit Planes(const TensorView& x)
      : batch(x.sizes[0]), channels(x.sizes[1]), size(numel(x.sizes.subspan(2))) {}
  int64_t count() const { return batch * size; }
  int64_t at(int64_t image, int64_t channel) const { return (image * channels + channel) * size; }
};

// Calls work(first element) for every plane of a channel and adds up what it returns.
template <typename Work>
double sum_planes(const Planes& planes, int64_t channel, const Work& work) {
  double sum = 0;
  for (int64_t image = 0; image < planes.batch; ++image) sum += work(planes.at(image, channel));
  return sum;
}

double inverse_deviation(double variance, double eps) { return 1 / std::sqrt(variance + eps); }

}  // namespace

void batch_norm(const BatchNorm& norm, ThreadPool& pool) {
  const Planes planes(norm.input);
  const Dense input(norm.input, pool);
  const PerChannel weight(norm.weight, 1, pool);
  const PerChannel bias(norm.bias, 0, pool);
  const PerChannel old_mean(norm.running_mean, 0, pool);
  const PerChannel old_var(norm.running_var, 0, pool);
  const float* x = input.as<float>();
  float* out = norm.out.as<float>();

  pool.run_ranges(planes.channels, grain_for(planes.count()), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      double mean = old_mean[c];
      double var = old_var[c];
      double squares = 0;
      if (norm.training) {
        const auto count = static_cast<double>(planes.count());
        mean =
            sum_planes(planes, c, [&](int64_t at) { return sum_of(x + at, planes.size); }) / count;
        squares = sum_planes(planes, c,
                             [&](int64_t at) { return sum_of_squares(x + at, planes.size, mean); });
        var = squares / count;
      }
      const double invstd = inverse_deviation(var, norm.eps);
      const auto scale = static_cast<float>(invstd * weight[c]);
      const auto center = static_cast<float>(mean);
      const float shift = bias[c];
      for (int64_t image = 0; image < planes.batch; ++image) {
        const int64_t at = planes.at(image, c);
        for (int64_t i = at; i < at + planes.size; ++i) out[i] = (x[i] - center) * scale + shift;
      }
      if (norm.training) {
        norm.save_mean.as<float>()[c] = center;
        norm.save_invstd.as<float>()[c] = static_cast<float>(invstd);
      }
      if (!norm.running_mean.present) continue;
      const double keep = norm.training ? 1 - norm.momentum : 1;
      const double take = norm.training ? norm.momentum : 0;
      const double unbiased = squares / static_cast<double>(planes.count() - 1);
      const float kept_mean = old_mean[c];
      const float kept_var = old_var[c];
      norm.new_mean.as<float>()[c] =
          take == 0 ? kept_mean : static_cast<float>(keep * kept_mean + take * mean);
      norm.new_var.as<float>()[c] =
          take == 0 ? kept_var : static_cast<float>(keep * kept_var + take * unbiased);
    }
  });
}

void batch_norm_backward(const BatchNormBackward& norm, ThreadPool& pool) {
  const Planes planes(norm.input);
  const Dense input(norm.input, pool);
  const Dense gradient(norm.grad, pool);
  const PerChannel weight(norm.weight, 1, pool);
  const PerChannel means(norm.training ? norm.save_mean : norm.running_mean, 0, pool);
  const PerChannel spreads(norm.training ? norm.save_invstd : norm.running_var, 1, pool);
  const float* x = input.as<float>();
  const float* g = gradient.as<float>();

  pool.run_ranges(planes.channels, grain_for(planes.count()), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const double mean = means[c];
      const double invstd = norm.training ? spreads[c] : inverse_deviation(spreads[c], norm.eps);
      const double sum =
          sum_planes(planes, c, [&](int64_t at) { return sum_of(g + at, planes.size); });
      const double dot = sum_planes(planes, c, [&](int64_t at) {
        return sum_of_products(g + at, x + at, planes.size, mean);
      });
      if (norm.grad_weight.present) {
        norm.grad_weight.as<float>()[c] = static_cast<float>(dot * invstd);
      }
      if (norm.grad_bias.present) norm.grad_bias.as<float>()[c] = static_cast<float>(sum);
      if (!norm.grad_input.present) continue;
      const auto count = static_cast<double>(planes.count());
      const auto grad_mean = static_cast<float>(sum / count);
      const auto slope = static_cast<float>(dot * invstd * invstd / count);
      const auto scale = static_cast<float>(invstd * weight[c]);
      const auto center = static_cast<float>(mean);
      float* out = norm.grad_input.as<float>();
      for (int64_t image = 0; image < planes.batch; ++image) {
        const int64_t at = planes.at(image, c);
        // With fixed statistics the input does not matter, whatever it holds.
        for (int64_t i = at; i < at + planes.size; ++i) {
          out[i] =
              norm.training ? (g[i] - grad_mean - (x[i] - center) * slope) * scale : g[i] * scale;
        }
      }
    }
  });
}

void layer_norm(const LayerNorm& norm, ThreadPool& pool) {
  const int64_t rows = norm.mean.numel();
  if (rows == 0) return;
  const int64_t size = norm.input.numel() / rows;
  const Dense input(norm.input, pool);
  const Dense weight(norm.weight, pool);
  const Dense bias(norm.bias, pool);
  pool.run_ranges(rows, grain_for(size), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* x = input.as<float>() + row * size;
      float* out = norm.out.as<float>() + row * size;
      const auto count = static_cast<double>(size);
      const double mean = sum_of(x, size) / count;
      const double rstd = inverse_deviation(sum_of_squares(x, size, mean) / count, norm.eps);
      const auto center = static_cast<float>(mean);
      const auto scale = static_cast<float>(rstd);
      norm.mean.as<float>()[row] = center;
      norm.rstd.as<float>()[row] = scale;
      for (int64_t i = 0; i < size; ++i) out[i] = (x[i] - center) * scale;
      if (norm.weight.present) {
        for (int64_t i = 0; i < size; ++i) out[i] *= weight.as<float>()[i];
      }
      if (norm.bias.present) {
        for (int64_t i = 0; i < size; ++i) out[i] += bias.as<float>()[i];
      }
    }
  });
}

void layer_norm_backward(const LayerNormBackward& norm, ThreadPool& pool) {
  const int64_t rows = norm.mean.numel();
  const int64_t size = rows == 0 ? 0 : norm.input.numel() / rows;
  const Dense input(norm.input, pool);
  const Dense gradient(norm.grad, pool);
  const Dense weight(norm.weight, pool);
  const Dense means(norm.mean, pool);
  const Dense rstds(norm.rstd, pool);

  if (norm.grad_input.present) {
    pool.run_ranges(rows, grain_for(size), [&](int64_t begin, int64_t end) {
      ScratchVector<float> scaled(static_cast<size_t>(size));  // the gradient times the weight
      for (int64_t row = begin; row < end; ++row) {
        const float* x = input.as<float>() + row * size;
        const float* g = gradient.as<float>() + row * size;
        float* out = norm.grad_input.as<float>() + row * size;
        if (norm.weight.present) {
          const float* w = weight.as<float>();
          for (int64_t i = 0; i < size; ++i) scaled[static_cast<size_t>(i)] = g[i] * w[i];
          g = scaled.data();
        }
        const float center = means.as<float>()[row];
        const float rstd = rstds.as<float>()[row];
        const auto count = static_cast<double>(size);
        const auto grad_mean = static_cast<float>(sum_of(g, size) / count);
        const auto slope =
            static_cast<float>(sum_of_products(g, x, size, center) * rstd * rstd / count);
        for (int64_t i = 0; i < size; ++i) {
          out[i] = (g[i] - grad_mean - (x[i] - center) * slope) * rstd;
        }
      }
    });
  }
  if (!norm.grad_weight.present && !norm.grad_bias.present) return;
  // Columns are cut, not rows, so that each sum is one thread's.
  const int64_t cols = norm.grad_weight.present ? norm.grad_weight.numel() : norm.grad_bias.numel();
  constexpr int64_t step = 64;
  pool.run_ranges(cols, step, [&](int64_t begin, int64_t end) {
    ScratchVector<double> sums(static_cast<size_t>(end - begin));
    ScratchVector<double> dots(static_cast<size_t>(end - begin));
    for (int64_t row = 0; row < rows; ++row) {
      const float* x = input.as<float>() + row * size + begin;
      const float* g = gradient.as<float>() + row * size + begin;
      const double center = means.as<float>()[row];
      const double rstd = rstds.as<float>()[row];
      for (size_t i = 0; i < sums.size(); ++i) {
        sums[i] += g[i];
        dots[i] += g[i] * (x[i] - center) * rstd;
      }
    }
    for (int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<size_t>(i - begin);
      if (norm.grad_weight.present) norm.grad_weight.as<float>()[i] = static_cast<float>(dots[at]);
      if (norm.grad_bias.present) norm.grad_bias.as<float>()[i] = static_cast<float>(sums[at]);
    }
  });
}

void group_norm(const GroupNorm& norm, ThreadPool& pool) {
  if (norm.input.numel() == 0) return;
  const Dense input(norm.input, pool);
  const PerChannel weight(norm.weight, 1, pool);
  const PerChannel bias(norm.bias, 0, pool);
  const int64_t members = norm.channels / norm.groups;
  const int64_t plane = norm.input.numel() / (norm.batch * norm.channels);
  const int64_t size = members * plane;
  pool.run_ranges(norm.batch * norm.groups, grain_for(size), [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      const float* x = input.as<float>() + group * size;
      float* out = norm.out.as<float>() + group * size;
      const auto count = static_cast<double>(size);
      const double mean = sum_of(x, size) / count;
      const double rstd = inverse_deviation(sum_of_squares(x, size, mean) / count, norm.eps);
      const auto center = static_cast<float>(mean);
      norm.mean.as<float>()[group] = center;
      norm.rstd.as<float>()[group] = static_cast<float>(rstd);
      for (int64_t member = 0; member < members; ++member) {
        const int64_t channel = group % norm.groups * members + member;
        const auto scale = static_cast<float>(rstd * weight[channel]);
        const float shift = bias[channel];
        for (int64_t i = member * plane; i < (member + 1) * plane; ++i) {
          out[i] = (x[i] - center) * scale + shift;
        }
      }
    }
  });
}

void group_norm_backward(const GroupNormBackward& norm, ThreadPool& pool) {
  const Dense input(norm.input, pool);
  const Dense gradient(norm.grad, pool);
  const Dense means(norm.mean, pool);
  const Dense rstds(norm.rstd, pool);
  const PerChannel weight(norm.weight, 1, pool);
  const int64_t planes = norm.batch * norm.channels;
  const int64_t members = norm.channels / norm.groups;
  const int64_t plane = planes == 0 ? 0 : norm.input.numel() / planes;
  ScratchVector<double> sums(static_cast<size_t>(planes));  // of the gradient
  ScratchVector<double> dots(
      static_cast<size_t>(planes));  // of the gradient times the normalised x

  const int64_t groups = norm.batch * norm.groups;
  pool.run_ranges(groups, grain_for(members * plane), [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      const float center = means.as<float>()[group];
      const float rstd = rstds.as<float>()[group];
      double weighted_sum = 0;
      double weighted_dot = 0;
      const auto channel_of = [&](int64_t at) { return at % norm.channels; };
      for (int64_t at = group * members; at < (group + 1) * members; ++at) {
        const float* x = input.as<float>() + at * plane;
        const float* g = gradient.as<float>() + at * plane;
        const auto i = static_cast<size_t>(at);
        sums[i] = sum_of(g, plane);
        dots[i] = sum_of_products(g, x, plane, center) * rstd;
        weighted_sum += weight[channel_of(at)] * sums[i];
        weighted_dot += weight[channel_of(at)] * dots[i];
      }
      if (!norm.grad_input.present) continue;
      const auto count = static_cast<double>(members * plane);
      const auto grad_mean = static_cast<float>(weighted_sum / count);
      const auto slope = static_cast<float>(weighted_dot * rstd / count);
      for (int64_t at = group * members; at < (group + 1) * members; ++at) {
        const float* x = input.as<float>() + at * plane;
        const float* g = gradient.as<float>() + at * plane;
        float* out = norm.grad_input.as<float>() + at * plane;
        const float w = weight[channel_of(at)];
        for (int64_t i = 0; i < plane; ++i) {
          out[i] = (g[i] * w - grad_mean - (x[i] - center) * slope) * rstd;
        }
      }
    }
  });
  for (int64_t channel = 0; channel < norm.channels; ++channel) {
    double sum = 0;
    double dot = 0;
    for (int64_t image = 0; image < norm.batch; ++image) {
      sum += sums[static_cast<size_t>(image * norm.channels + channel)];
      dot += dots[static_cast<size_t>(image * norm.channels + channel)];
    }
    if (norm.grad_weight.present) norm.grad_weight.as<float>()[channel] = static_cast<float>(dot);
    if (norm.grad_bias.present) norm.grad_bias.as<float>()[channel] = static_cast<float>(sum);
  }
}

}  // namespace tessera::kernels
