#include "tessera/api/instances.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "tessera/base/error.h"
#include "tessera/dist/connect.h"
#include "tessera/torch/convert.h"

namespace tessera {
namespace {

std::string text_in_environment(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? text : "";
}

dist::LinkSettings settings_of_environment() {
  dist::LinkSettings settings;
  const std::string text = text_in_environment("TESSERA_INSTANCE_TIMEOUT");
  if (text.empty()) return settings;
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  check(end && *end == '\0' && std::isfinite(seconds) && seconds > 0, ErrorKind::runtime,
        "the environment variable TESSERA_INSTANCE_TIMEOUT must be a number of seconds above 0, "
        "got '{}'",
        text);
  settings.patience = std::chrono::duration<double>(std::min(seconds, 1e8));
  return settings;
}

thread_local std::vector<int> members_now;  // none: all

int64_t count_of_members(const dist::Link& link) {
  return members_now.empty() ? link.count() : static_cast<int64_t>(members_now.size());
}

void check_tensor(const at::Tensor& tensor, const std::string& what) {
  check(tensor.layout() == at::kStrided && tensor.is_cpu() && has_dtype(tensor.scalar_type()),
        ErrorKind::type, "{}: a dense tensor of numbers in main memory was wanted, not one of {}",
        what, c10::toString(tensor.scalar_type()));
}

at::Tensor copy_of(const at::Tensor& tensor, const std::string& what) {
  check_tensor(tensor, what);
  const at::NoGradGuard no_grad;
  return tensor.detach().resolve_conj().resolve_neg().clone(at::MemoryFormat::Contiguous);
}

// Type and sizes from dimension `from` on, to be compared.
std::string kind_of(const at::Tensor& tensor, int64_t from) {
  std::string text = c10::toString(tensor.scalar_type());
  for (int64_t i = from; i < tensor.dim(); ++i) text += fmt::format(" {}", tensor.size(i));
  return fmt::format("{} of {} dimensions", text, tensor.dim());
}

}  // namespace

bool was_launched_by_mpi() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"}) {
    if (std::getenv(variable)) return true;
  }
  return false;
}

std::shared_ptr<dist::Link> joined_instances() {
  auto link = dist::connected();
  return link && link->count() > 1 ? link : nullptr;
}

std::shared_ptr<dist::Link> join_instances(int64_t index, int64_t count) {
  auto link = dist::connected();
  if (!link) {
    check(was_launched_by_mpi(), ErrorKind::runtime,
          "this is said to be instance {} of {}, but nobody has started the others: start them "
          "together with 'poprun --num-instances={}' or 'mpirun -np {}'",
          index, count, count, count);
    const ErrorContext where("joining the others as instance {} of {}", index, count);
    link = dist::connect({.settings = settings_of_environment(),
                          .library = text_in_environment("TESSERA_MPI_LIBRARY")});
  }
  check(link->count() == count && link->index() == index, ErrorKind::runtime,
        "this is said to be instance {} of {}, but MPI calls it {} of {}: start as many processes "
        "as the program is told of, and let it take their numbers from the launcher",
        index, count, link->index(), link->count());
  return link;
}

std::shared_ptr<dist::Link> instances_of(const Options& options) {
  const DistributedOptions& process = options.Distributed();
  if (process.numProcesses() == 1) return nullptr;
  return join_instances(process.processId(), process.numProcesses());
}

bool overlaps_additions() {
  const std::string text = text_in_environment("TESSERA_OVERLAP");
  check(text.empty() || text == "0" || text == "1", ErrorKind::runtime,
        "the environment variable TESSERA_OVERLAP must be 0 or 1, got '{}'", text);
  return text != "0";
}

at::Tensor reduce_over_instances(const at::Tensor& tensor, Reduction reduction, bool average,
                                 const std::string& what, const std::function<void()>& poll) {
  at::Tensor result = copy_of(tensor, what);
  const auto link = joined_instances();
  if (!link) return result;
  link->reduce(members_now, what, reduction, dtype_of(result.scalar_type()), bytes_of(result),
               poll);
  if (!average) return result;
  const at::NoGradGuard no_grad;
  const int64_t count = count_of_members(*link);
  return at::isIntegralType(result.scalar_type(), true)
             ? at::div(result, count, "floor").to(result.scalar_type())
             : result.div_(static_cast<double>(count));
}

at::Tensor gather_from_instances(const at::Tensor& tensor, const std::string& what,
                                 const std::function<void()>& poll) {
  at::Tensor own = copy_of(tensor, what);
  const auto link = joined_instances();
  if (!link) return own;
  if (own.dim() == 0) own = own.reshape({1});
  const auto bytes = bytes_of(own);
  const std::string kind = kind_of(own, 1);
  const auto kinds = link->gather(members_now, what, kind, poll);
  for (const std::string& other : kinds) {
    check(other == kind, ErrorKind::value,
          "{}: tensors must have the same type and, but for dimension 0, the same sizes "
          "everywhere; here {}, elsewhere {}",
          what, kind, other);
  }
  const auto parts = link->gather(
      members_now, what, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, poll);
  std::vector<at::Tensor> tensors;
  const auto row =  // of one that may have none
      static_cast<size_t>(own.element_size() * c10::multiply_integers(own.sizes().slice(1)));
  for (const std::string& part : parts) {
    std::vector<int64_t> sizes = own.sizes().vec();
    sizes[0] = row == 0 ? 0 : static_cast<int64_t>(part.size() / row);
    at::Tensor one = at::empty(sizes, own.options());
    std::copy_n(reinterpret_cast<const std::byte*>(part.data()), part.size(),
                bytes_of(one).begin());
    tensors.push_back(one);
  }
  return at::cat(tensors, 0);
}

at::Tensor broadcast_to_instances(const at::Tensor& tensor, int64_t root, const std::string& what,
                                  const std::function<void()>& poll) {
  at::Tensor result = copy_of(tensor, what);
  const auto link = joined_instances();
  const int64_t count = link ? link->count() : 1;
  check(root >= 0 && root < count, ErrorKind::value,
        "{}: there is no instance {}; there are {}, counted from 0", what, root, count);
  if (link) {
    link->broadcast(members_now, what, bytes_of(result), static_cast<int>(root), poll);
  }
  return result;
}

std::vector<std::string> gather_texts(std::string text, const std::string& what,
                                      const std::function<void()>& poll) {
  const auto link = joined_instances();
  if (!link) return {std::move(text)};
  return link->gather(members_now, what, std::move(text), poll);
}

void meet_instances(const std::string& what, const std::function<void()>& poll) {
  if (const auto link = joined_instances()) link->barrier(members_now, what, poll);
}

void fail_instances(const std::string& why) {
  if (const auto link = joined_instances()) link->fail(why);
}

OnlyInstances::OnlyInstances(std::vector<int> members) : before_(members_now) {
  std::sort(members.begin(), members.end());
  members_now = std::move(members);
}

OnlyInstances::~OnlyInstances() { members_now = before_; }

}  // namespace tessera
