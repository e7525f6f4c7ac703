#include "tessera/backend/cpu/kernels/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "tessera/backend/cpu/memory.h"
#include "tessera/base/log.h"
#include "tessera/ir/text.h"

namespace tessera::cpu {
namespace {

constexpr int timed_runs = 4;
// Shorter calls are left to the order of the table: a clock cannot tell them apart.
constexpr double worth_timing = 5e-6;

// Memory for one use, filled with ones: neither zero nor denormal, and an index that exists.
class Trial {
 public:
  Trial(const KernelUse& use, int threads) : attrs_(use.attrs), pool_(threads, use.target.level) {
    for (const KernelOperand& operand : use.inputs) add(operand, inputs_);
    for (const KernelOperand& operand : use.outputs) add(operand, outputs_);
  }

  double seconds(const PreparedKernel& kernel) {
    const Memory workspace(kernel.workspace_bytes());
    double best = 1e9;
    for (int run = 0; run < timed_runs; ++run) {
      const auto start = std::chrono::steady_clock::now();
      kernel.run(
          {.inputs = inputs_, .outputs = outputs_, .attrs = attrs_, .pool = pool_, .rng = {}},
          {workspace.data(), static_cast<size_t>(workspace.bytes())});
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      if (run > 0) best = std::min(best, taken.count());  // the first one warms up
    }
    return best;
  }

 private:
  void add(const KernelOperand& operand, std::vector<TensorView>& views) {
    if (!operand.present) {
      views.push_back({nullptr, operand.dtype, {}, {}, false});
      return;
    }
    const auto size = static_cast<int64_t>(size_of(operand.dtype));
    const Geometry& geometry = operand.geometry;
    const Memory& memory = memories_.emplace_back(extent(geometry) * size);
    if (operand.dtype == DType::f32) {
      auto* floats = reinterpret_cast<float*>(memory.data());
      std::fill(floats, floats + memory.bytes() / size, 1.0F);
    }
    views.push_back(
        {memory.data() + geometry.offset * size, operand.dtype, geometry.shape, geometry.strides});
  }

  const Attrs& attrs_;
  ThreadPool pool_;
  std::vector<Memory> memories_;
  std::vector<TensorView> inputs_, outputs_;
};

}  // namespace

std::string text_of(const KernelUse& use) {
  std::string text = use.op.name;
  for (const AttrSpec& spec : use.op.attrs) {
    const Attr* attr = use.attrs.find(spec.name);
    if (attr) text += fmt::format(" {}={}", spec.name, print_attr(*attr));
  }
  for (const auto operands : {use.inputs, use.outputs}) {
    for (const KernelOperand& operand : operands) {
      if (!operand.present) {
        text += " -";
        continue;
      }
      fmt::format_to(std::back_inserter(text), " {}{}",
                     to_string(TensorType{operand.dtype, operand.geometry.shape}),
                     to_string(operand.layout));
      if (!same_elements(operand.geometry, dense(operand.geometry.shape))) {
        text += tessera::to_string(operand.geometry.strides);
      }
    }
  }
  return use.target.precise ? text + " precise" : text;
}

KernelTuner::KernelTuner(TunedKernels known, int threads)
    : known_(std::move(known)), threads_(threads) {}

KernelChoice KernelTuner::choose(const KernelUse& use) {
  const auto entries = applying_entries(use);
  if (entries.size() < 2) return choose_kernel(use);
  const std::string key = text_of(use);
  const KernelEntry* chosen = nullptr;
  if (const auto known = known_.find(key); known != known_.end()) {
    // A name that is no longer there, or does not apply on this CPU, is passed over.
    const auto at = std::find_if(entries.begin(), entries.end(),
                                 [&](const auto* entry) { return entry->name == known->second; });
    if (at != entries.end()) chosen = *at;
  }
  if (!chosen && threads_ > 0) chosen = fastest(use, entries);
  if (!chosen) return choose_kernel(use);
  known_[key] = choices_[key] = chosen->name;
  return {std::string(chosen->name), prepare_entry(*chosen, use)};
}

const KernelEntry* KernelTuner::fastest(const KernelUse& use,
                                        std::span<const KernelEntry* const> entries) {
  Trial trial(use, threads_);
  const KernelEntry* best = nullptr;
  double best_time = 0;
  std::string times;
  for (const KernelEntry* entry : entries) {
    const double seconds = trial.seconds(*prepare_entry(*entry, use));
    fmt::format_to(std::back_inserter(times), " {} {:.1f} us", entry->name, seconds * 1e6);
    if (!best && seconds < worth_timing) return nullptr;
    if (best && seconds >= best_time) continue;
    best = entry;
    best_time = seconds;
  }
  log(LogLevel::debug, "timed {}:{}", text_of(use), times);
  return best;
}

}  // namespace tessera::cpu
