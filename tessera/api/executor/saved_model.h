// A file that Executor::save() wrote: a program with the values of its states, the inputs it was
// compiled with and, where the front end put it there, its module.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/api/executor/model_access.h"
#include "tessera/api/options/options.h"
#include "tessera/base/error.h"
#include "tessera/files/executable_file.h"

namespace tessera {

// Reads from a file. Whatever is wrong with it is an Error for its user, of no other kind.
template <typename Read>
auto read_from_file(const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Error(ErrorKind::user, error.message());
  }
}

struct SaveRequest {
  bool rng_state = true;
  // What the front end adds: texts and parts by name, such as the pickled module.
  std::map<std::string, std::string> metadata = {}, parts = {};
};

class SavedModel {
 public:
  // Error where the file cannot be read, is damaged or no saved model.
  explicit SavedModel(const std::string& path);

  const ExecutableFile& file() const { return file_; }
  const std::string& path() const { return file_.path(); }
  std::string version() const;  // of PopTorch and Tessera, see files/versions.h

  // Error where another version wrote it, or for the other purpose.
  void check_version() const;
  void check_purpose(Purpose purpose) const;

  StepSignature signature() const;
  Graph graph() const;
  std::span<const std::byte> part(const std::string& name) const;
  std::span<const std::byte> state_value(size_t index) const;
  // One micro-batch of each input, as the program was compiled with.
  std::vector<NamedTensor> example_inputs() const;

 private:
  ExecutableFile file_;
};

// Names of metadata and parts that save() writes.
namespace saved {
inline constexpr const char *version = "poptorch version", *purpose = "purpose",
                            *program = "program key", *lines = "source lines",
                            *rng_words = "words of rng_state", *gradient_counts = "gradient counts";
std::string example_part(size_t input);
std::string_view name_of(Purpose purpose);
}  // namespace saved

// Where a file is to be written: makes folders that are missing; one that names a folder stands for
// `model.poptorch` in it, with a warning.
std::string path_to_save(const std::string& path);

// What loading means for options: a device that was not there when the program was compiled is.
void drop_offline_target(Options& options);

}  // namespace tessera
