// Convolutions of single pixels between many channels, which lie in groups of eight, and a few that
// lie plain: the last layer of a network that labels pixels. The wide side is read or written as it
// lies. All three are bound by memory: the wide image is passed over once.
#include <algorithm>
#include <array>

#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/backend/cpu/kernels/x86/avx2.h"
#include "tessera/base/divided_up.h"

namespace tessera::cpu {
namespace {

using namespace avx2;

constexpr int64_t piece_elements = 32768;  // of the wide side, about
constexpr int64_t most_narrow = 16;        // channels
constexpr int64_t most_pieces = 256;       // of the weight's gradient: each has its own sums

// [images, groups, places, 8] on the wide side, [images, narrow, places] on the other.
struct Problem {
  int64_t images = 0, groups = 0, narrow = 0, places = 0;

  int64_t wide() const { return groups * lanes; }
  int64_t wide_image() const { return wide() * places; }
  int64_t narrow_image() const { return narrow * places; }
};

// Places of one image that a piece works on.
struct Span {
  int64_t image = 0, begin = 0, count = 0;
};

class Pieces {
 public:
  explicit Pieces(const Problem& p, int64_t most = INT64_MAX) : places_(p.places) {
    const int64_t enough = (p.places * p.images - 1) / most + 1;
    grain_ = std::max({lanes, piece_elements / p.wide(), enough}) / lanes * lanes;
    per_image_ = divided_up(p.places, grain_);
    count_ = per_image_ * p.images;
  }

  int64_t count() const { return count_; }
  Span operator[](int64_t piece) const {
    const int64_t begin = piece % per_image_ * grain_;
    return {piece / per_image_, begin, std::min(grain_, places_ - begin)};
  }

 private:
  int64_t places_, grain_ = 0, per_image_ = 0, count_ = 0;
};

// The sums of the lanes of eight vectors, in order.
TESSERA_AVX2 inline __m256 sums_of_eight(const __m256 (&v)[8]) {
  const __m256 low = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
  const __m256 high = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
  return _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20),
                       _mm256_permute2f128_ps(low, high, 0x31));
}

// One channel of eight places; of those beyond `count` nothing is read or written.
template <bool whole>
TESSERA_AVX2 inline void eight_places(const Problem& p, const float* x, const float* weight,
                                      float bias, int64_t count, float* out) {
  __m256 sums[8];
  for (auto& v : sums) v = _mm256_setzero_ps();
  for (int64_t group = 0; group < p.groups; ++group, x += p.places * lanes) {
    const __m256 w = _mm256_loadu_ps(weight + group * lanes);
    for (int64_t i = 0; i < 8; ++i) {
      if (!whole && i >= count) break;
      sums[i] = _mm256_fmadd_ps(w, _mm256_loadu_ps(x + i * lanes), sums[i]);
    }
  }
  store<whole>(out, mask_of(count), _mm256_add_ps(sums_of_eight(sums), _mm256_set1_ps(bias)));
}

// conv(input, weight, bias?)
class NarrowConv : public PreparedKernel {
 public:
  explicit NarrowConv(const Problem& problem) : p_(problem), pieces_(problem) {}

  void run(const KernelCall& call, std::span<std::byte>) const override {
    call.pool.run(pieces_.count(), [&](int64_t piece) { one(call, pieces_[piece]); });
  }

 private:
  TESSERA_AVX2 void one(const KernelCall& call, const Span& span) const {
    const float* x = call.inputs[0].as<float>() + span.image * p_.wide_image() + span.begin * lanes;
    const float* weight = call.inputs[1].as<float>();
    const float* bias = call.has_input(2) ? call.inputs[2].as<float>() : nullptr;
    float* out = call.outputs[0].as<float>() + span.image * p_.narrow_image() + span.begin;
    // All channels of eight places at once: what was read stays in the first cache.
    for (int64_t i = 0; i < span.count; i += lanes) {
      const int64_t count = std::min(lanes, span.count - i);
      for (int64_t o = 0; o < p_.narrow; ++o) {
        const float shift = bias ? bias[o] : 0;
        float* to = out + o * p_.places + i;
        if (count == lanes) {
          eight_places<true>(p_, x + i * lanes, weight + o * p_.wide(), shift, count, to);
        } else {
          eight_places<false>(p_, x + i * lanes, weight + o * p_.wide(), shift, count, to);
        }
      }
    }
  }

  Problem p_;
  Pieces pieces_;
};

// conv_input_grad(grad, weight)
class NarrowInputGrad : public PreparedKernel {
 public:
  explicit NarrowInputGrad(const Problem& problem) : p_(problem), pieces_(problem) {}

  void run(const KernelCall& call, std::span<std::byte>) const override {
    call.pool.run(pieces_.count(), [&](int64_t piece) { one(call, pieces_[piece]); });
  }

 private:
  TESSERA_AVX2 void one(const KernelCall& call, const Span& span) const {
    const float* grad = call.inputs[0].as<float>() + span.image * p_.narrow_image() + span.begin;
    const float* weight = call.inputs[1].as<float>();
    float* out = call.outputs[0].as<float>() + span.image * p_.wide_image() + span.begin * lanes;
    for (int64_t group = 0; group < p_.groups; ++group) {
      __m256 w[most_narrow];
      for (int64_t o = 0; o < p_.narrow; ++o) {
        w[o] = _mm256_loadu_ps(weight + o * p_.wide() + group * lanes);
      }
      float* to = out + group * p_.places * lanes;
      for (int64_t i = 0; i < span.count; ++i) {
        __m256 sum = _mm256_mul_ps(w[0], _mm256_broadcast_ss(grad + i));
        for (int64_t o = 1; o < p_.narrow; ++o) {
          sum = _mm256_fmadd_ps(w[o], _mm256_broadcast_ss(grad + o * p_.places + i), sum);
        }
        _mm256_storeu_ps(to + i * lanes, sum);
      }
    }
  }

  Problem p_;
  Pieces pieces_;
};

// The gradient of the weights between `count` narrow channels and one group, over some places.
template <int count>
TESSERA_AVX2 void add_products(const float* grad, int64_t grad_stride, const float* x,
                               int64_t places, float* out, int64_t out_stride) {
  __m256 sums[count][2];
  for (auto& pair : sums) pair[0] = pair[1] = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + 2 <= places; i += 2) {
    for (int k = 0; k < 2; ++k) {
      const __m256 v = _mm256_loadu_ps(x + (i + k) * lanes);
      for (int o = 0; o < count; ++o) {
        const __m256 g = _mm256_broadcast_ss(grad + o * grad_stride + i + k);
        sums[o][k] = _mm256_fmadd_ps(g, v, sums[o][k]);
      }
    }
  }
  for (int o = 0; o < count; ++o) {
    __m256 sum = _mm256_add_ps(sums[o][0], sums[o][1]);
    if (i < places) {
      sum = _mm256_fmadd_ps(_mm256_broadcast_ss(grad + o * grad_stride + i),
                            _mm256_loadu_ps(x + i * lanes), sum);
    }
    _mm256_storeu_ps(out + o * out_stride, sum);
  }
}

// conv_weight_grad(grad, input)
class NarrowWeightGrad : public PreparedKernel {
 public:
  explicit NarrowWeightGrad(const Problem& problem) : p_(problem), pieces_(problem, most_pieces) {}

  int64_t workspace_bytes() const override {
    return pieces_.count() * weights() * static_cast<int64_t>(sizeof(float));
  }

  void run(const KernelCall& call, std::span<std::byte> workspace) const override {
    auto* sums = reinterpret_cast<float*>(workspace.data());
    call.pool.run(pieces_.count(),
                  [&](int64_t piece) { one(call, pieces_[piece], sums + piece * weights()); });
    float* out = call.outputs[0].as<float>();
    for (int64_t i = 0; i < weights(); ++i) {
      double sum = 0;
      for (int64_t piece = 0; piece < pieces_.count(); ++piece) sum += sums[piece * weights() + i];
      out[i] = static_cast<float>(sum);
    }
  }

 private:
  int64_t weights() const { return p_.narrow * p_.wide(); }

  void one(const KernelCall& call, const Span& span, float* sums) const {
    const float* grad = call.inputs[0].as<float>() + span.image * p_.narrow_image() + span.begin;
    const float* x = call.inputs[1].as<float>() + span.image * p_.wide_image() + span.begin * lanes;
    for (int64_t group = 0; group < p_.groups; ++group) {
      for (int64_t o = 0; o < p_.narrow; o += 4) {
        constexpr std::array add = {add_products<1>, add_products<2>, add_products<3>,
                                    add_products<4>};
        const auto count = static_cast<size_t>(std::min<int64_t>(4, p_.narrow - o));
        add[count - 1](grad + o * p_.places, p_.places, x + group * p_.places * lanes, span.count,
                       sums + o * p_.wide() + group * lanes, p_.wide());
      }
    }
  }

  Problem p_;
  Pieces pieces_;
};

// Which operand is what; the weight's gradient stands where the weight does.
struct Roles {
  const KernelOperand *wide, *narrow, *weight, *bias = nullptr;
};

using FindRoles = Roles (*)(const KernelUse&);

Roles roles_of_conv(const KernelUse& use) {
  return {&use.inputs[0], &use.outputs[0], &use.inputs[1],
          use.has_input(2) ? &use.inputs[2] : nullptr};
}
Roles roles_of_input_grad(const KernelUse& use) {
  return {&use.outputs[0], &use.inputs[0], &use.inputs[1]};
}
Roles roles_of_weight_grad(const KernelUse& use) {
  return {&use.inputs[1], &use.inputs[0], &use.outputs[0]};
}

bool all_are(const std::vector<int64_t>& values, int64_t value) {
  return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == value; });
}

bool is_dense(const KernelOperand& x, const Layout& layout, size_t rank) {
  return x.dtype == DType::f32 && x.layout == layout && x.geometry.shape.size() == rank &&
         same_elements(x.geometry, dense(x.geometry.shape));
}

// Whatever the layouts.
bool is_narrow(const KernelUse& use, const Roles& roles) {
  const Shape weight = roles.weight->geometry.shape;
  return weight.size() == 4 && is_dense(*roles.weight, {}, 4) &&
         numel(roles.narrow->geometry.shape) > 0 && weight[2] == 1 && weight[3] == 1 &&
         weight[0] <= most_narrow && weight[0] % lanes != 0 && weight[1] % lanes == 0 &&
         all_are(use.attrs.integers("stride"), 1) && all_are(use.attrs.integers("padding"), 0) &&
         use.attrs.integer("groups") == 1 && (!roles.bias || is_dense(*roles.bias, {}, 1));
}

template <FindRoles roles_of>
bool applies(const KernelUse& use) {
  const Roles roles = roles_of(use);
  return is_narrow(use, roles) && is_dense(*roles.wide, channels_layout, 5) &&
         is_dense(*roles.narrow, {}, 4);
}

template <FindRoles roles_of>
std::vector<Layout> wants(const KernelUse& use) {
  // Small images are better left to the kernels that keep all of their layers plain.
  constexpr int64_t fewest_places = 64;
  const Roles roles = roles_of(use);
  const Shape& narrow = roles.narrow->geometry.shape;
  if (!is_narrow(use, roles) || narrow.size() != 4) return {};
  if (narrow[2] * narrow[3] < fewest_places) return {};
  if (roles.wide->dtype != DType::f32 || !is_dense(*roles.narrow, {}, 4)) return {};
  std::vector<Layout> layouts;
  for (const auto operands : {use.inputs, use.outputs}) {
    for (const KernelOperand& operand : operands) {
      layouts.push_back(&operand == roles.wide ? channels_layout : Layout{});
    }
  }
  return layouts;
}

Problem problem_of(const Roles& roles) {
  const Shape& narrow = roles.narrow->geometry.shape;
  return {narrow[0], roles.weight->geometry.shape[1] / lanes, narrow[1], narrow[2] * narrow[3]};
}

template <typename Kernel, FindRoles roles_of>
std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  return std::make_unique<Kernel>(problem_of(roles_of(use)));
}

template <typename Kernel, FindRoles roles_of>
constexpr KernelEntry entry(std::string_view op) {
  return {op, "narrow", applies<roles_of>, prepare<Kernel, roles_of>, wants<roles_of>};
}

}  // namespace

std::span<const KernelEntry> narrow_conv_entries() {
  static constexpr KernelEntry entries[] = {
      entry<NarrowConv, roles_of_conv>("conv"),
      entry<NarrowInputGrad, roles_of_input_grad>("conv_input_grad"),
      entry<NarrowWeightGrad, roles_of_weight_grad>("conv_weight_grad"),
  };
  return entries;
}

}  // namespace tessera::cpu
