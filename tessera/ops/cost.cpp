#include "tessera/ops/cost.h"

namespace tessera {
namespace {

struct Work {
  double operator()(const ContractionCost& c) const {
    return 2 * static_cast<double>(c.multiply_adds);
  }
  double operator()(const RecurrentCost& c) const {
    return 2 * static_cast<double>(c.multiply_adds);
  }
  double operator()(const ReductionCost& c) const {
    return static_cast<double>(c.elements + c.results);
  }
  double operator()(const ElementwiseCost& c) const {
    return static_cast<double>(c.elements) * c.flops_per_element;
  }
  double operator()(const GatherCost& c) const { return static_cast<double>(c.bytes_moved); }
  double operator()(const CopyCost& c) const { return static_cast<double>(c.bytes_moved); }
  double operator()(const CollectiveCost& c) const { return static_cast<double>(c.bytes_moved); }
};

}  // namespace

double work(const Cost& cost) { return std::visit(Work{}, cost); }

}  // namespace tessera
