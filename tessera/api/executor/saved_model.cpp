#include "tessera/api/executor/saved_model.h"

#include <ATen/ATen.h>

#include <cstring>
#include <filesystem>

#include "tessera/base/log.h"
#include "tessera/files/versions.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/dispatch.h"

namespace tessera {

std::string saved::example_part(size_t input) { return fmt::format("example input {}", input); }

std::string_view saved::name_of(Purpose purpose) {
  return purpose == Purpose::training ? "training" : "inference";
}

SavedModel::SavedModel(const std::string& path)
    : file_(read_from_file([&] { return ExecutableFile(path); })) {
  check(file_.metadata(saved::version) && file_.metadata(saved::program),
        "'{}' is no model that was saved with save() or compileAndExport()", path);
  // All of it, also what this load will not read: a damaged file is not to be trusted in parts.
  read_from_file([&] { file_.container().check_all(); });
}

std::string SavedModel::version() const { return std::string(*file_.metadata(saved::version)); }

void SavedModel::check_version() const {
  check(version() == poptorch_version(),
        "PopTorch version mismatch: File {} was created with version: {}, and this is version: {}; "
        "compile and save the model again",
        path(), version(), poptorch_version());
}

void SavedModel::check_purpose(Purpose purpose) const {
  const std::string_view of_file = file_.metadata(saved::purpose).value_or("");
  check(of_file == saved::name_of(purpose),
        "'{}' holds a program for {}, but this model was wrapped for {}; wrap it with "
        "poptorch.{}Model()",
        path(), of_file, saved::name_of(purpose), of_file);
}

StepSignature SavedModel::signature() const {
  return read_from_file([&] { return file_.signature(); });
}

Graph SavedModel::graph() const {
  return read_from_file([&] { return file_.graph(); });
}

std::span<const std::byte> SavedModel::part(const std::string& name) const {
  return read_from_file([&] { return file_.part(name); });
}

std::span<const std::byte> SavedModel::state_value(size_t index) const {
  return read_from_file([&] { return file_.state_value(index); });
}

std::vector<NamedTensor> SavedModel::example_inputs() const {
  const NotRecorded quiet;
  std::vector<NamedTensor> inputs;
  for (const StepInput& input : signature().inputs) {
    const at::Tensor tensor = at::empty(input.type.shape, scalar_type_of(input.host));
    const auto bytes = part(saved::example_part(inputs.size()));
    check(bytes.size() == bytes_of(tensor).size(),
          "'{}' is damaged: the example of input '{}' has {} bytes, not {}", path(), input.name,
          bytes.size(), bytes_of(tensor).size());
    std::memcpy(bytes_of(tensor).data(), bytes.data(), bytes.size());
    inputs.push_back({input.name, tensor});
  }
  return inputs;
}

std::string path_to_save(const std::string& path) {
  namespace fs = std::filesystem;
  fs::path place(path);
  if (fs::is_directory(place) || (!path.empty() && path.back() == '/')) {
    place /= "model.poptorch";
    log(LogLevel::warn, "save: '{}' is a folder; the model is saved as '{}'", path, place.string());
  }
  std::error_code error;
  if (place.has_parent_path()) fs::create_directories(place.parent_path(), error);
  check(!error, ErrorKind::user, "save: the folder '{}' cannot be made: {}",
        place.parent_path().string(), error.message());
  return place;
}

void drop_offline_target(Options& options) {
  if (options.connection_type() == ConnectionType::never) {
    options.connectionType(ConnectionType::always);
  }
  if (options.ipu_version()) options.clear("ipu_version");
}

}  // namespace tessera
