// A fused body by the kernels of its steps' rows, a block of some hundred elements at a time, so
// that all values of a block stay in the first-level cache. Complete for all types, on any CPU, and
// with the bits of the operators one after the other.
//
// It is made ready once, for operands of one geometry; a run allocates nothing but what threads
// keep (base/scratch.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/geometry.h"
#include "tessera/ops/fused_body.h"

namespace tessera {

class FusedInterpreter {
 public:
  // A complete body that its row's rule has accepted.
  FusedInterpreter(FusedBody body, std::span<const Geometry> operands);

  // For run(): values that are summed when all of them are there.
  int64_t workspace_bytes() const { return workspace_bytes_; }
  // Operands of the geometries it was made for; a result may lie over one of them.
  void run(const KernelCall& call, std::span<std::byte> workspace) const;

 private:
  class Range;

  struct Operand {
    Strides strides;  // in the merged shape; 0 where it is repeated
    bool single;      // has one element
  };
  struct Step {
    void (*run)(const KernelCall&);
    size_t slot;                                    // where in a block's memory its result lies
    std::vector<std::array<std::byte, 4>> numbers;  // by argument; of others, nothing
  };
  // A result as it is stored: steps that are summed go to the workspace first.
  struct Stored {
    size_t step, output;
    int64_t workspace_offset = -1;  // not negative: there instead
  };
  struct Sum {
    size_t output;
    BodyValue value;
    int64_t workspace_offset;
    Strides strides;
    Attrs attrs;
  };

  void merge_dimensions(std::span<const Geometry> operands);
  void cut_into_blocks();
  void prepare_steps();
  void prepare_results(std::span<const Geometry> operands);

  FusedBody body_;
  Shape logical_, shape_;  // what operands broadcast to; the same with dimensions merged
  std::vector<Operand> operands_;
  std::vector<Step> steps_;
  size_t slots_ = 0;
  std::vector<Stored> stored_;
  std::vector<Sum> sums_;
  int64_t workspace_bytes_ = 0;
  // A block is one index of each outer dimension, some of the cut one, all of the inner ones.
  size_t cut_dim_ = 0;
  int64_t blocks_ = 0, block_elements_ = 0, inner_ = 1, cut_step_ = 1, cuts_ = 1;
};

}  // namespace tessera
