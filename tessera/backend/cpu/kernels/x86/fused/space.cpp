#include "tessera/backend/cpu/kernels/x86/fused/space.h"

#include <algorithm>

#include "tessera/backend/cpu/kernels/epilogue.h"
#include "tessera/backend/cpu/kernels/x86/avx2.h"

namespace tessera::cpu {
namespace {

using avx2::lanes;

Shape logical_shape(const KernelOperand& operand) {
  Shape shape = operand.geometry.shape;
  for (const int dim : operand.layout.cut) shape[static_cast<size_t>(dim)] *= Layout::group;
  shape.resize(shape.size() - operand.layout.cut.size());
  return shape;
}

// The one layout of everything that is not plain.
std::optional<Layout> common_layout(const KernelUse& use) {
  Layout layout;
  const auto add = [&](const KernelOperand& operand) {
    if (operand.layout.plain()) return true;
    if (!layout.plain() && layout != operand.layout) return false;
    layout = operand.layout;
    return true;
  };
  if (!std::all_of(use.inputs.begin(), use.inputs.end(), add)) return std::nullopt;
  if (!std::all_of(use.outputs.begin(), use.outputs.end(), add)) return std::nullopt;
  return layout;
}

// Strides in the dimensions of the space before merging.
struct RawSpace {
  Layout layout;
  Shape logical, physical;
  // Operands, results, then the sums if there are some, then row-major numbers if they are asked.
  std::vector<Strides> streams;
  std::vector<bool> folded;  // by physical dimension
};

Strides physical_strides(const RawSpace& space, const Strides& logical) {
  return physical_geometry(space.layout, {space.logical, logical, 0}).strides;
}

bool add_operand(RawSpace& space, const KernelOperand& operand) {
  if (!has_vectors_of(operand.dtype)) return false;
  if (!operand.layout.plain()) {
    if (operand.geometry.shape != space.physical) return false;
    space.streams.push_back(operand.geometry.strides);
    return true;
  }
  const Geometry& geometry = operand.geometry;
  space.streams.push_back(
      physical_strides(space, broadcast_strides(geometry.shape, geometry.strides, space.logical)));
  return true;
}

// What one sum's result looks like from the space; the dimensions it folds.
bool add_sums(RawSpace& space, const FusedBody& body, const KernelUse& use) {
  const BodyResult* first = nullptr;
  for (size_t i = 0; i < body.results.size(); ++i) {
    const BodyResult& result = body.results[i];
    if (!result.summed) continue;
    if (use.outputs[i].dtype != DType::f32 || !use.outputs[i].layout.plain()) return false;
    if (first && result.dims != first->dims) return false;
    first = &result;
  }
  space.folded.assign(space.physical.size(), false);
  if (!first) return true;
  std::vector<bool> folds(space.logical.size(), first->dims.empty());
  for (const int64_t dim : first->dims) folds[static_cast<size_t>(dim)] = true;
  Strides strides(space.logical.size(), 0);
  int64_t stride = 1;
  for (size_t i = space.logical.size(); i-- > 0;) {
    if (folds[i]) continue;
    strides[i] = stride;
    stride *= space.logical[i];
  }
  space.streams.push_back(physical_strides(space, strides));
  for (size_t i = 0; i < folds.size(); ++i) space.folded[i] = folds[i];
  for (size_t i = 0; i < space.layout.cut.size(); ++i) {
    space.folded[space.logical.size() + i] = folds[static_cast<size_t>(space.layout.cut[i])];
  }
  return true;
}

// Dimensions of one element go; neighbours that all streams run through evenly become one.
void merge(RawSpace& space) {
  Shape shape;
  std::vector<Strides> streams(space.streams.size());
  std::vector<bool> folded;
  for (size_t i = 0; i < space.physical.size(); ++i) {
    const int64_t size = space.physical[i];
    if (size == 1) continue;
    bool even = !shape.empty() && folded.back() == space.folded[i];
    for (size_t k = 0; k < streams.size() && even; ++k) {
      even = streams[k].back() == space.streams[k][i] * size;
    }
    if (even) {
      shape.back() *= size;
      for (size_t k = 0; k < streams.size(); ++k) streams[k].back() = space.streams[k][i];
      continue;
    }
    shape.push_back(size);
    folded.push_back(space.folded[i]);
    for (size_t k = 0; k < streams.size(); ++k) streams[k].push_back(space.streams[k][i]);
  }
  space.physical = std::move(shape);
  space.streams = std::move(streams);
  space.folded = std::move(folded);
}

// Strides of dimensions of one element do not matter: they become those with which they are one run
// with their neighbours.
void smooth(RawSpace& space) {
  const size_t rank = space.physical.size();
  for (Strides& strides : space.streams) {
    for (size_t i = 0; i < rank; ++i) {
      if (space.physical[i] == 1 && i > 0) strides[i] = strides[i - 1];
    }
    for (size_t i = rank; i-- > 0;) {
      if (space.physical[i] != 1 || i + 1 == rank) continue;
      const bool last = std::all_of(space.physical.begin() + static_cast<int64_t>(i),
                                    space.physical.end(), [](int64_t size) { return size == 1; });
      if (!last) strides[i] = strides[i + 1] * space.physical[i + 1];
    }
  }
}

std::optional<RawSpace> raw_space(const FusedBody& body, const KernelUse& use, bool merged) {
  const auto layout = common_layout(use);
  if (!layout) return std::nullopt;
  RawSpace space{*layout, {}, {}, {}, {}};
  for (const KernelOperand& operand : use.inputs) {
    if (!operand.present) return std::nullopt;
    space.logical = broadcast(space.logical, logical_shape(operand));
  }
  if (!fits(*layout, space.logical) || numel(space.logical) == 0) return std::nullopt;
  space.physical = physical_shape(*layout, space.logical);
  if (space.physical.size() > most_dimensions) return std::nullopt;
  for (const KernelOperand& operand : use.inputs) {
    if (!add_operand(space, operand)) return std::nullopt;
  }
  for (size_t i = 0; i < body.results.size(); ++i) {
    if (body.results[i].summed) continue;
    const KernelOperand& result = use.outputs[i];
    if (result.layout != *layout || result.geometry.shape != space.physical) return std::nullopt;
    if (!same_elements(result.geometry, dense(space.physical))) return std::nullopt;
    if (!add_operand(space, result)) return std::nullopt;
  }
  if (!add_sums(space, body, use)) return std::nullopt;
  if (reads_random_state(use.op, use.attrs)) {
    space.streams.push_back(physical_strides(space, contiguous_strides(space.logical)));
  }
  if (merged) {
    merge(space);
  } else {
    smooth(space);
  }
  return space;
}

// The strides of a stream in the dimensions that are left outside, and in the row.
FusedStream stream_of(const Strides& strides, DType dtype, const std::vector<size_t>& outer,
                      bool grouped) {
  FusedStream stream{dtype, {}, 0, 0};
  for (const size_t dim : outer) stream.strides.push_back(strides[dim]);
  if (strides.empty()) return stream;
  stream.lane_stride = strides.back();
  stream.vector_stride = grouped ? strides[strides.size() - 2] : strides.back() * lanes;
  return stream;
}

std::optional<FusedSpace::Sums> sums_of(const FusedStream& sum) {
  using Sums = FusedSpace::Sums;
  if (sum.vector_stride == 0 && sum.lane_stride == 0) return Sums::row;
  if (sum.vector_stride == 0 && sum.lane_stride == 1) return Sums::lanes;
  if (sum.dense()) return Sums::columns;
  return std::nullopt;
}

}  // namespace

bool has_vectors_of(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::i32 ||
         dtype == DType::boolean;
}

std::optional<FusedSpace> fused_space(const FusedBody& body, const KernelUse& use, bool merged) {
  const auto raw = raw_space(body, use, merged);
  if (!raw) return std::nullopt;
  FusedSpace space;
  const size_t rank = raw->physical.size();
  space.grouped = rank > 1 && raw->physical.back() == lanes;
  // A row that keeps its vectors but folds their lanes is as many rows of one vector.
  if (space.grouped && raw->folded[rank - 1] && !raw->folded[rank - 2]) space.grouped = false;
  const size_t inner = std::min<size_t>(rank, space.grouped ? 2 : 1);
  std::vector<size_t> outer;
  for (size_t i = 0; i + inner < rank; ++i) {
    if (!raw->folded[i]) outer.push_back(i);
  }
  space.kept = outer.size();
  for (size_t i = 0; i + inner < rank; ++i) {
    if (raw->folded[i]) outer.push_back(i);
  }
  for (const size_t dim : outer) space.outer.push_back(raw->physical[dim]);
  for (size_t i = rank - inner; i < rank; ++i) space.row *= raw->physical[i];

  size_t at = 0;
  for (const KernelOperand& operand : use.inputs) {
    space.operands.push_back(stream_of(raw->streams[at++], operand.dtype, outer, space.grouped));
  }
  bool sums = false;
  for (size_t i = 0; i < body.results.size(); ++i) {
    sums = sums || body.results[i].summed;
    if (body.results[i].summed) continue;
    FusedStream stream = stream_of(raw->streams[at++], use.outputs[i].dtype, outer, space.grouped);
    if (rank == 0) stream.vector_stride = lanes, stream.lane_stride = 1;
    if (!stream.dense()) return std::nullopt;
    space.results.push_back(std::move(stream));
  }
  for (size_t i = 0; i + inner < rank && !merged; ++i) {
    const auto even = [&](const Strides& strides) {
      return strides[i] == strides[i + 1] * raw->physical[i + 1];
    };
    space.even.push_back(std::all_of(raw->streams.begin(), raw->streams.end(), even));
  }
  if (reads_random_state(use.op, use.attrs)) {
    space.element = stream_of(raw->streams.back(), DType::i32, outer, space.grouped);
  }
  if (!sums) return space;
  if (!merged) return std::nullopt;
  space.sum = stream_of(raw->streams[at], DType::f32, outer, space.grouped);
  const auto kind = sums_of(space.sum);
  if (!kind) return std::nullopt;
  space.sums = *kind;
  for (size_t i = 0; i < rank; ++i) {
    if (!raw->folded[i]) space.sum_elements *= raw->physical[i];
  }
  return space;
}

}  // namespace tessera::cpu
