// Concatenation of tensors that all lie in the same layout: runs of bytes are moved, whatever the
// layout and the type. Parts may have any strides, as long as their runs are not too short; parts
// that run along another dimension than the result are transposed in blocks.
#include <algorithm>
#include <cstring>

#include "tessera/backend/cpu/kernels/native.h"

namespace tessera::cpu {
namespace {

constexpr int64_t piece_bytes = 128 * 1024;
constexpr int64_t shortest_run = 16;  // bytes
constexpr int64_t block_elements = 16 * 1024;

struct Dim {
  int64_t size = 1, from = 0, to = 0;  // strides in bytes
};

// One operand: runs of bytes that lie side by side in it and in the result, or matrices whose rows
// become columns.
struct Part {
  size_t input = 0;
  int64_t to = 0;          // of its first byte
  int64_t run = 0;         // bytes
  std::vector<Dim> outer;  // over the runs
  int64_t runs = 1;
  TransposeBlock transpose = nullptr;
  Dim rows = {}, columns = {};  // the result runs along rows, the operand along columns
};

// Some runs of a part, or some bytes of a single one; or some columns of a matrix.
struct Piece {
  size_t part = 0;
  int64_t begin = 0, end = 0;    // runs
  int64_t first = 0, count = 0;  // bytes or columns
};

Part part_of(size_t input, const KernelOperand& x, const Strides& to, int64_t at,
             TransposeBlock transpose) {
  const auto item = static_cast<int64_t>(size_of(x.dtype));
  const Geometry& from = x.geometry;
  Part part{input, at, item, {}};
  size_t d = from.shape.size();
  while (d > 0 && (from.shape[d - 1] == 1 ||
                   (from.strides[d - 1] * item == part.run && to[d - 1] * item == part.run))) {
    part.run *= from.shape[--d];
  }
  for (size_t i = 0; i < d; ++i) {
    const Dim dim{from.shape[i], from.strides[i] * item, to[i] * item};
    if (dim.size == 1) continue;
    part.runs *= dim.size;
    if (!part.outer.empty() && part.outer.back().from == dim.from * dim.size &&
        part.outer.back().to == dim.to * dim.size) {
      part.outer.back() = {part.outer.back().size * dim.size, dim.from, dim.to};
    } else {
      part.outer.push_back(dim);
    }
  }
  if (part.runs == 1 || part.run >= shortest_run) return part;

  const auto columns = std::find_if(part.outer.begin(), part.outer.end(),
                                    [&](const Dim& dim) { return dim.from == item; });
  if (!transpose || item != sizeof(float) || part.run != item || columns == part.outer.end() ||
      part.outer.back().to != item || columns == part.outer.end() - 1) {
    return part;
  }
  part.transpose = transpose;
  part.columns = *columns;
  part.rows = part.outer.back();
  part.outer.pop_back();
  part.outer.erase(columns);
  part.runs /= part.rows.size * part.columns.size;
  return part;
}

int64_t dim_of(const KernelUse& use) {
  const KernelOperand& out = use.outputs[0];
  const size_t rank = out.geometry.shape.size() - out.layout.cut.size();
  return wrap_dim(use.attrs.integer("dim"), static_cast<int64_t>(rank));
}

std::vector<Part> parts_of(const KernelUse& use) {
  const Geometry& out = use.outputs[0].geometry;
  const auto dim = static_cast<size_t>(dim_of(use));
  const TransposeBlock transpose = native_transpose(use.target.level);
  std::vector<Part> parts;
  int64_t at = 0;
  for (size_t i = 0; i < use.inputs.size(); ++i) {
    const KernelOperand& x = use.inputs[i];
    if (numel(x.geometry.shape) == 0) continue;
    const auto item = static_cast<int64_t>(size_of(x.dtype));
    parts.push_back(part_of(i, x, out.strides, at * out.strides[dim] * item, transpose));
    at += x.geometry.shape[dim];
  }
  return parts;
}

// cat(tensors...)
class CatKernel : public PreparedKernel {
 public:
  explicit CatKernel(std::vector<Part> parts) : parts_(std::move(parts)) {
    for (size_t i = 0; i < parts_.size(); ++i) cut(i);
  }

  void run(const KernelCall& call, std::span<std::byte>) const override {
    call.pool.run(static_cast<int64_t>(pieces_.size()), [&](int64_t i) {
      const Piece& piece = pieces_[static_cast<size_t>(i)];
      const Part& part = parts_[piece.part];
      move(part, piece, call.inputs[part.input].data, call.outputs[0].data + part.to);
    });
  }

 private:
  void cut(size_t index) {
    const Part& part = parts_[index];
    const int64_t length = part.transpose ? part.columns.size : part.run;
    const int64_t step = part.transpose
                             ? std::max<int64_t>(8, block_elements / part.rows.size / 8 * 8)
                             : piece_bytes;
    const int64_t grain = std::max<int64_t>(1, step / length);
    for (int64_t run = 0; run < part.runs; run += grain) {
      const int64_t end = std::min(run + grain, part.runs);
      for (int64_t first = 0; first < length; first += step) {
        pieces_.push_back({index, run, end, first, std::min(step, length - first)});
      }
    }
  }

  static void move(const Part& part, const Piece& piece, const std::byte* from, std::byte* to) {
    const Dim last = part.outer.empty() ? Dim{} : part.outer.back();
    for (int64_t i = piece.begin; i < piece.end;) {
      int64_t source = 0, target = 0, rest = i;
      for (size_t d = part.outer.size(); d-- > 0;) {
        const int64_t k = rest % part.outer[d].size;
        rest /= part.outer[d].size;
        source += k * part.outer[d].from;
        target += k * part.outer[d].to;
      }
      const int64_t end = std::min(piece.end, i + last.size - i % last.size);
      for (; i < end; ++i, source += last.from, target += last.to) {
        move_one(part, piece, from + source, to + target);
      }
    }
  }

  static void move_one(const Part& part, const Piece& piece, const std::byte* from, std::byte* to) {
    if (!part.transpose) {
      std::memcpy(to + piece.first, from + piece.first, static_cast<size_t>(piece.count));
      return;
    }
    constexpr int64_t item = sizeof(float);
    part.transpose(reinterpret_cast<const float*>(from) + piece.first, part.rows.from / item,
                   part.rows.size, piece.count,
                   reinterpret_cast<float*>(to + piece.first * part.columns.to),
                   part.columns.to / item);
  }

  std::vector<Part> parts_;
  std::vector<Piece> pieces_;
};

bool applies(const KernelUse& use) {
  const KernelOperand& out = use.outputs[0];
  if (numel(out.geometry.shape) == 0) return false;
  for (const KernelOperand& x : use.inputs) {
    if (x.dtype != out.dtype) return false;
    if (numel(x.geometry.shape) == 0) continue;
    if (x.layout != out.layout || x.geometry.shape.size() != out.geometry.shape.size()) {
      return false;
    }
  }
  const auto parts = parts_of(use);
  return std::all_of(parts.begin(), parts.end(), [](const Part& part) {
    return part.transpose || part.runs == 1 || part.run >= shortest_run;
  });
}

std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  return std::make_unique<CatKernel>(parts_of(use));
}

}  // namespace

std::span<const KernelEntry> cat_entries() {
  static constexpr KernelEntry entries[] = {
      {"cat", "runs", applies, prepare, nullptr, true},
  };
  return entries;
}

}  // namespace tessera::cpu
