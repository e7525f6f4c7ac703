// What the instances of a program do together, for popdist and horovod.torch.
#include "tessera/api/instances.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/extension.h>

#include <string>
#include <utility>
#include <vector>

#include "tessera/api/popdist.h"
#include "tessera/bindings/bindings.h"

namespace py = pybind11;

namespace tessera {
namespace {

std::vector<std::string> hosts() {
  const auto link = joined_instances();
  if (!link) return {""};
  std::vector<std::string> names;
  for (int i = 0; i < link->count(); ++i) names.push_back(link->host_of(i));
  return names;
}

std::vector<py::bytes> gather_bytes(const py::bytes& own, const std::string& what) {
  std::vector<std::string> texts;
  {
    std::string text = own;
    const py::gil_scoped_release others_may_run;
    texts = gather_texts(std::move(text), what, &raise_pending_signal);
  }
  return {texts.begin(), texts.end()};
}

}  // namespace

void bind_instances(py::module_& module) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  py::enum_<Reduction>(module, "Reduction")
      .value("sum", Reduction::sum)
      .value("min", Reduction::min)
      .value("max", Reduction::max)
      .value("product", Reduction::product);
  module.def("popdist_init", &popdist::init, Unlocked());
  module.def("instance_index", [] {
    const auto link = joined_instances();
    return link ? link->index() : 0;
  });
  module.def("instance_hosts", &hosts);
  module.def(
      "instances_reduce",
      [](const at::Tensor& tensor, Reduction reduction, bool average, const std::string& what) {
        return reduce_over_instances(tensor, reduction, average, what, &raise_pending_signal);
      },
      Unlocked());
  module.def(
      "instances_gather",
      [](const at::Tensor& tensor, const std::string& what) {
        return gather_from_instances(tensor, what, &raise_pending_signal);
      },
      Unlocked());
  module.def(
      "instances_broadcast",
      [](const at::Tensor& tensor, int64_t root, const std::string& what) {
        return broadcast_to_instances(tensor, root, what, &raise_pending_signal);
      },
      Unlocked());
  module.def("instances_gather_bytes", &gather_bytes);
  module.def(
      "instances_meet",
      [](const std::string& what) { meet_instances(what, &raise_pending_signal); }, Unlocked());
  module.def("instances_fail", &fail_instances, Unlocked());
  module.def("instances_only",
             [](std::vector<int> members, const std::function<py::object()>& function) {
               const OnlyInstances only(std::move(members));
               return function();
             });
  module.def("instances_counters", [] {
    const auto link = joined_instances();
    const dist::LinkCounters counters = link ? link->counters() : dist::LinkCounters{};
    py::dict numbers;
    numbers["messages"] = counters.messages;
    numbers["bytes"] = counters.bytes;
    numbers["waited_seconds"] = static_cast<double>(counters.waited_nanoseconds) * 1e-9;
    return numbers;
  });
}

}  // namespace tessera
