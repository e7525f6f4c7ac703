// A fused body made ready for one use: its space, its code, and how the space is cut into pieces.
// Where a step has no instructions, the code is one of stages (stages.h).
//
// Pieces are fixed by the shape. Each adds to sums of its own, in double; finish() adds those of
// all pieces in their order.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "tessera/backend/cpu/kernels/epilogue.h"
#include "tessera/backend/cpu/kernels/x86/fused/code.h"
#include "tessera/backend/cpu/kernels/x86/fused/space.h"
#include "tessera/backend/cpu/kernels/x86/fused/stages.h"

namespace tessera::cpu {

class FusedProgram {
 public:
  static constexpr size_t most_operands = 16;

  // Whether code can be made for it; makes none.
  static bool fits(const FusedBody& body, const KernelUse& use);
  // Null where no code can be made for it.
  static std::unique_ptr<FusedProgram> make(FusedBody body, const KernelUse& use);
  // For run() on boxes: no sums, and instructions for every step.
  static std::unique_ptr<FusedProgram> make_for_boxes(FusedBody body, const KernelUse& use);

  int64_t pieces() const { return kept_cuts_ * folded_cuts_ * row_cuts_; }
  size_t sum_count() const { return sum_results_.size(); }
  int64_t workspace_bytes() const;

  // Operands and results in the order of the use; `sums` is the workspace.
  void run(int64_t piece, std::span<const TensorView> operands, std::span<const TensorView> results,
           const RngState& rng, double* sums) const;
  // A part of the space, counted in physical dimensions: what a Epilogue does with a contraction's
  // result. Where the last dimension is a group of eight, the box has all of it.
  void run(const Box& box, std::span<const TensorView> operands,
           std::span<const TensorView> results, const RngState& rng) const;
  // After all pieces: some of the elements of the sums.
  void finish(int64_t begin, int64_t end, std::span<const TensorView> results,
              const double* sums) const;
  // What finish() counts: kept rows.
  int64_t kept_rows() const { return kept_rows_; }

 private:
  static constexpr size_t most_steps = 64;
  using Roundings = std::array<RoundingStream, most_steps>;  // by step

  FusedProgram(FusedBody body, FusedSpace space, const KernelUse& use);

  static std::optional<FusedSpace> space_for(const FusedBody& body, const KernelUse& use,
                                             bool merged);
  static std::unique_ptr<FusedProgram> make(FusedBody body, const KernelUse& use, bool merged);
  void cut();
  bool folds_rows() const;
  double* sum_at(double* sums, int64_t part, size_t sum, int64_t kept_row) const;
  template <typename Run>
  void for_each_row(int64_t piece, std::span<const TensorView> operands,
                    std::span<const TensorView> results, const Roundings& roundings, double* sums,
                    const Run& run) const;
  // Of the steps that read the random state; of others, anything.
  void set_roundings(Roundings& roundings, const RngState& rng) const;

  const FusedBody body_;
  const FusedSpace space_;
  // One of the two.
  std::unique_ptr<const FusedCode> code_;
  std::unique_ptr<const FusedStages> stages_;
  std::vector<size_t> plain_results_, sum_results_;  // which results they are
  std::vector<size_t> random_steps_;
  int64_t kept_rows_ = 1, folded_rows_ = 1;
  int64_t sum_unit_ = 1;  // doubles for one kept row
  // Of one piece, and how many pieces that makes.
  int64_t kept_step_ = 1, folded_step_ = 1, row_step_ = 1;
  int64_t kept_cuts_ = 1, folded_cuts_ = 1, row_cuts_ = 1;
};

}  // namespace tessera::cpu
