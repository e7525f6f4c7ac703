// Negative log likelihood and its gradient, of rows of classes and of images of them. The gradient
// of an image is written class by class: each pixel's label is compared with the class.
#include <algorithm>

#include "tessera/backend/cpu/kernels/avx2.h"
#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/base/cpu_level.h"
#include "tessera/base/error.h"

namespace tessera::cpu {
namespace {

using namespace avx2;

constexpr int64_t piece_targets = 8192;

enum Reduction : int64_t { none = 0, mean = 1, sum = 2 };

// Log probabilities as [batch, classes, places]; a label for each of batch * places.
struct Problem {
  int64_t batch = 1, classes = 1, places = 1;
  int64_t reduction = mean, ignored = 0;

  int64_t targets() const { return batch * places; }
  // Pieces lie within an image where it has many places; otherwise they are rows.
  int64_t pieces_per_image() const { return (places + piece_targets - 1) / piece_targets; }
};

[[noreturn]] void complain(int32_t label, int64_t classes) {
  fail(ErrorKind::user, "class index {} is outside the {} classes", label, classes);
}

// Of one piece.
struct Losses {
  double loss = 0, weight = 0;
};

// nll_loss_forward(self, target, weight?) -> output, total_weight; also of images.
class NllLoss : public PreparedKernel {
 public:
  explicit NllLoss(const Problem& problem) : p_(problem) {}

  int64_t workspace_bytes() const override {
    return pieces() * static_cast<int64_t>(sizeof(Losses));
  }

  void run(const KernelCall& call, std::span<std::byte> workspace) const override {
    auto* losses = reinterpret_cast<Losses*>(workspace.data());
    call.pool.run(pieces(), [&](int64_t piece) {
      const int64_t begin = piece * piece_targets;
      losses[piece] = fold(call, begin, std::min(begin + piece_targets, p_.targets()));
    });
    auto* total_weight = call.outputs[1].as<float>();
    *total_weight = 0;
    if (p_.reduction == none) return;
    Losses all;
    for (int64_t i = 0; i < pieces(); ++i) {
      all.loss += losses[i].loss;
      all.weight += losses[i].weight;
    }
    *call.outputs[0].as<float>() =
        static_cast<float>(p_.reduction == mean ? all.loss / all.weight : all.loss);
    *total_weight = static_cast<float>(all.weight);
  }

 private:
  int64_t pieces() const { return (p_.targets() + piece_targets - 1) / piece_targets; }

  Losses fold(const KernelCall& call, int64_t begin, int64_t end) const {
    const int32_t* labels = call.inputs[1].as<int32_t>();
    const float* weights = call.has_input(2) ? call.inputs[2].as<float>() : nullptr;
    float* out = p_.reduction == none ? call.outputs[0].as<float>() : nullptr;
    Losses losses;
    for (int64_t i = begin; i < end;) {
      const int64_t image = i / p_.places;
      const float* x =
          call.inputs[0].as<float>() + image * (p_.classes - 1) * p_.places;  // of the place i
      const int64_t last = std::min(end, (image + 1) * p_.places);
      for (; i < last; ++i) {
        const int32_t label = labels[i];
        float loss = 0;
        if (label != p_.ignored) {
          if (label < 0 || label >= p_.classes) complain(label, p_.classes);
          const float weight = weights ? weights[label] : 1;
          loss = -x[i + label * p_.places] * weight;
          losses.weight += double{weight};
        }
        losses.loss += double{loss};
        if (out) out[i] = loss;
      }
    }
    return losses;
  }

  Problem p_;
};

// One class of neighbouring pixels: what their share is where it is their label, else 0.
TESSERA_AVX2 void write_class(const int32_t* labels, int32_t label, float share, int64_t count,
                              float* out) {
  const __m256i wanted = _mm256_set1_epi32(label);
  const __m256 shares = _mm256_set1_ps(share);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const __m256i at = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(labels + i));
    const __m256 is_label = _mm256_castsi256_ps(_mm256_cmpeq_epi32(at, wanted));
    _mm256_storeu_ps(out + i, _mm256_and_ps(shares, is_label));
  }
  for (; i < count; ++i) out[i] = labels[i] == label ? share : 0;
}

// nll_loss_backward(grad, self, target, weight?, total_weight); also of images.
class NllLossGrad : public PreparedKernel {
 public:
  explicit NllLossGrad(const Problem& problem) : p_(problem) {}

  void run(const KernelCall& call, std::span<std::byte>) const override {
    if (p_.places == 1) {
      const int64_t grain = std::max<int64_t>(1, 4 * piece_targets / p_.classes);
      call.pool.run_ranges(p_.batch, grain, [&](int64_t begin, int64_t end) {
        std::fill(out(call) + begin * p_.classes, out(call) + end * p_.classes, 0.0F);
        scatter(call, begin, end);
      });
      return;
    }
    call.pool.run(p_.batch * p_.pieces_per_image(), [&](int64_t piece) {
      const int64_t image = piece / p_.pieces_per_image();
      const int64_t first = piece % p_.pieces_per_image() * piece_targets;
      pixels(call, image, first, std::min(piece_targets, p_.places - first));
    });
  }

 private:
  static float* out(const KernelCall& call) { return call.outputs[0].as<float>(); }

  float share(const KernelCall& call, int64_t target, int64_t label) const {
    const float weight = call.has_input(3) ? call.inputs[3].as<float>()[label] : 1;
    const float share = weight * call.inputs[0].as<float>()[p_.reduction == none ? target : 0];
    return -(p_.reduction == mean ? share / *call.inputs[4].as<float>() : share);
  }

  void pixels(const KernelCall& call, int64_t image, int64_t first, int64_t count) const {
    const int64_t target = image * p_.places + first;
    const int32_t* labels = call.inputs[2].as<int32_t>() + target;
    float* to = out(call) + image * p_.classes * p_.places + first;
    for (int64_t label = 0; label < p_.classes; ++label, to += p_.places) {
      const bool zero = p_.reduction == none || label == p_.ignored;
      write_class(labels, static_cast<int32_t>(label), zero ? 0 : share(call, 0, label), count, to);
    }
    if (p_.reduction == none) return scatter(call, target, target + count);
    check_labels(labels, count);
  }

  void scatter(const KernelCall& call, int64_t begin, int64_t end) const {
    const int32_t* labels = call.inputs[2].as<int32_t>();
    check_labels(labels + begin, end - begin);
    for (int64_t i = begin; i < end; ++i) {
      if (labels[i] == p_.ignored) continue;
      const int64_t at = (i / p_.places * p_.classes + labels[i]) * p_.places + i % p_.places;
      out(call)[at] = share(call, i, labels[i]);
    }
  }

  void check_labels(const int32_t* labels, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) {
      if (labels[i] == p_.ignored || (labels[i] >= 0 && labels[i] < p_.classes)) continue;
      complain(labels[i], p_.classes);
    }
  }

  Problem p_;
};

bool is_plain(const KernelOperand& x, DType dtype) {
  return !x.present || (x.layout.plain() && x.dtype == dtype &&
                        same_elements(x.geometry, dense(x.geometry.shape)));
}

template <bool backward>
bool applies(const KernelUse& use) {
  constexpr size_t target = backward ? 2 : 1;
  for (size_t i = 0; i < use.inputs.size(); ++i) {
    if (!is_plain(use.inputs[i], i == target ? DType::i32 : DType::f32)) return false;
  }
  return has_avx2() && is_plain(use.outputs[0], DType::f32) &&
         numel(use.inputs[backward ? 1 : 0].geometry.shape) > 0;
}

Problem problem_of(const KernelUse& use, const Shape& shape) {
  Problem p;
  p.classes = shape.size() == 1 ? shape[0] : shape[1];
  p.batch = shape.size() == 1 ? 1 : shape[0];
  p.places = numel(shape) / (p.batch * p.classes);
  p.reduction = use.attrs.integer("reduction");
  p.ignored = use.attrs.integer("ignore_index");
  return p;
}

std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  return std::make_unique<NllLoss>(problem_of(use, use.inputs[0].geometry.shape));
}

std::unique_ptr<PreparedKernel> prepare_grad(const KernelUse& use) {
  return std::make_unique<NllLossGrad>(problem_of(use, use.inputs[1].geometry.shape));
}

}  // namespace

std::span<const KernelEntry> nll_loss_entries() {
  static constexpr KernelEntry entries[] = {
      {"nll_loss_forward", "avx2_nll_loss", applies<false>, prepare},
      {"nll_loss2d_forward", "avx2_nll_loss", applies<false>, prepare},
      {"nll_loss_backward", "avx2_nll_loss_backward", applies<true>, prepare_grad},
      {"nll_loss2d_backward", "avx2_nll_loss_backward", applies<true>, prepare_grad},
  };
  return entries;
}

}  // namespace tessera::cpu
