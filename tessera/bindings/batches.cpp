// Whole batches, and which samples are this process's.
#include "tessera/api/batches.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <vector>

#include "tessera/api/partition.h"
#include "tessera/bindings/bindings.h"

namespace py = pybind11;

namespace tessera {
namespace {

// Indices as a sampler gives them. None where one is not a number from 0 up to `count`: what
// happens then is for the user's code to say.
std::optional<std::vector<int64_t>> indices_of(const py::handle& list, int64_t count) {
  if (!PyList_CheckExact(list.ptr())) return std::nullopt;
  std::vector<int64_t> indices;
  indices.reserve(static_cast<size_t>(PyList_GET_SIZE(list.ptr())));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.ptr()); ++i) {
    PyObject* item = PyList_GET_ITEM(list.ptr(), i);
    if (!PyLong_CheckExact(item)) return std::nullopt;
    int overflow = 0;
    const int64_t index = PyLong_AsLongLongAndOverflow(item, &overflow);
    if (overflow != 0 || index < 0 || index >= count) return std::nullopt;
    indices.push_back(index);
  }
  return indices;
}

// One tensor for each of `columns`, or None. Where a column has a table, its bytes are looked up.
py::object gathered(const std::vector<std::pair<at::Tensor, std::optional<at::Tensor>>>& columns,
                    const py::handle& list) {
  std::vector<at::Tensor> batch;
  const auto indices = indices_of(list, columns.at(0).first.size(0));
  if (!indices || indices->empty()) return py::none();
  {
    const py::gil_scoped_release release;
    for (const auto& [rows, table] : columns) {
      batch.push_back(table ? gathered_rows(rows, *indices, *table)
                            : gathered_rows(rows, *indices));
    }
  }
  py::list returned;
  for (at::Tensor& column : batch) returned.append(py::cast(std::move(column)));
  return returned;
}

}  // namespace

void bind_batches(py::module_& module) {
  module.def("gathered", &gathered);
  py::class_<Partition>(module, "Partition", "The samples that one of several processes loads.")
      .def_readonly("first", &Partition::first)
      .def_readonly("count", &Partition::count)
      .def_readonly("leftovers", &Partition::leftovers)
      .def("first_in", &Partition::first_in)
      .def(py::pickle(
          [](const Partition& self) {
            return py::make_tuple(self.first, self.count, self.leftovers);
          },
          [](const py::tuple& state) {
            return Partition{state[0].cast<int64_t>(), state[1].cast<int64_t>(),
                             state[2].cast<int64_t>()};
          }));
  module.def("partition", &partition);
  module.def("common_shuffle_seed", &common_shuffle_seed);
}

}  // namespace tessera
