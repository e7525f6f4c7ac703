// Negative log likelihood and its gradient, of rows of classes and of images of them. The gradient
// of an image is written class by class: each pixel's label is compared with the class.
#include <algorithm>

#include "tessera/backend/cpu/kernels/after_copies.h"
#include "tessera/backend/cpu/kernels/x86/avx2.h"
#include "tessera/backend/cpu/kernels/x86/loss/labelled_classes.h"
#include "tessera/base/divided_up.h"

namespace tessera::cpu {
namespace {

using namespace avx2;
using namespace labelled_classes;

constexpr int64_t piece_targets = 8192;

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
    write_sums(p_, {losses, static_cast<size_t>(pieces())}, call);
  }

 private:
  int64_t pieces() const { return divided_up(p_.targets(), piece_targets); }

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
          check_label(p_, label);
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
    call.pool.run(p_.batch * pieces_per_image(), [&](int64_t piece) {
      const int64_t image = piece / pieces_per_image();
      const int64_t first = piece % pieces_per_image() * piece_targets;
      pixels(call, image, first, std::min(piece_targets, p_.places - first));
    });
  }

 private:
  // Pieces lie within an image where it has many places; otherwise they are rows.
  int64_t pieces_per_image() const { return divided_up(p_.places, piece_targets); }

  static float* out(const KernelCall& call) { return call.outputs[0].as<float>(); }

  void pixels(const KernelCall& call, int64_t image, int64_t first, int64_t count) const {
    const int64_t target = image * p_.places + first;
    const int32_t* labels = call.inputs[2].as<int32_t>() + target;
    float* to = out(call) + image * p_.classes * p_.places + first;
    for (int64_t label = 0; label < p_.classes; ++label, to += p_.places) {
      const bool zero = p_.reduction == none || label == p_.ignored;
      write_class(labels, static_cast<int32_t>(label), zero ? 0 : share_of(p_, call, 0, label),
                  count, to);
    }
    if (p_.reduction == none) return scatter(call, target, target + count);
    check_labels(p_, labels, count);
  }

  void scatter(const KernelCall& call, int64_t begin, int64_t end) const {
    const int32_t* labels = call.inputs[2].as<int32_t>();
    check_labels(p_, labels + begin, end - begin);
    for (int64_t i = begin; i < end; ++i) {
      if (labels[i] == p_.ignored) continue;
      const int64_t at = (i / p_.places * p_.classes + labels[i]) * p_.places + i % p_.places;
      out(call)[at] = share_of(p_, call, i, labels[i]);
    }
  }

  Problem p_;
};

template <bool backward>
bool applies(const KernelUse& use) {
  constexpr size_t target = backward ? 2 : 1;
  for (size_t i = 0; i < use.inputs.size(); ++i) {
    if (!is_plain(use.inputs[i], i == target ? DType::i32 : DType::f32)) return false;
  }
  return is_plain(use.outputs[0], DType::f32) &&
         numel(use.inputs[backward ? 1 : 0].geometry.shape) > 0;
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
      {"nll_loss2d_forward", "copies_avx2_nll_loss", applies_after_copies<applies<false>>,
       prepare_after_copies<prepare>},
      {"nll_loss2d_backward", "copies_avx2_nll_loss_backward", applies_after_copies<applies<true>>,
       prepare_after_copies<prepare_grad>},
  };
  return entries;
}

}  // namespace tessera::cpu
