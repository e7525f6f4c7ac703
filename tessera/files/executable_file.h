// Executables as files: what an export writes and a cache keeps.
//
// A file holds data alone: a step Graph and its StepSignature as text with their constants beside
// it, what they were compiled for, and, where the writer gives them, the values of states, the
// optimiser's numbers, the random state, named texts and named parts that are nothing to us. No
// code, and nothing that is run by being read. A Plan is made again from the Graph where the file
// is loaded.
//
// Files may come from anywhere: whatever is in one, reading it gives what it says or an Error, and
// takes no more memory than a small multiple of its size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/rng.h"
#include "tessera/base/shape.h"
#include "tessera/files/container.h"
#include "tessera/passes/read_graph.h"
#include "tessera/runtime/compile.h"
#include "tessera/runtime/executable.h"
#include "tessera/runtime/session.h"

namespace tessera {

// What a file is made of. Spans are read while it is written, not kept.
struct ExecutableContents {
  const Executable* executable = nullptr;
  // What it was compiled with. Kept is what changes the program: passes, halves, operators, Target;
  // the kernels chosen by timing are the executable's.
  CompileOptions options = {};

  // The value of each of executable->states(), in order, dense and of its host_type(): where groups
  // of replicas have different values, one after the other. Empty: the file has no values.
  std::vector<std::span<const std::byte>> states = {};
  // The value of each of executable->hyperparameters(), in order. Empty: the file has none.
  std::vector<double> hyperparameters = {};
  std::optional<RngState> rng = {};  // its replica is not kept

  std::map<std::string, std::string> metadata = {};  // texts for whoever reads the file
  // Bytes for the writer's own use (a pickled module). Only read when asked for.
  std::map<std::string, std::span<const std::byte>> parts = {};
};

// Written beside the place, synced and moved there. Error where it cannot be written.
void write_executable(const std::string& path, const ExecutableContents& contents);
std::vector<std::byte> executable_bytes(const ExecutableContents& contents);

struct SavedState {
  std::string name;
  StateKind kind = StateKind::parameter;
  TensorType type;
  int64_t copies = 1;  // values, one after the other: of groups of replicas, where they differ
};

struct SavedNumber {
  std::string name;
  double value = 0;
};

class ExecutableFile {
 public:
  // Maps the file and reads what is small of it. Error where it cannot be read, is another's, of
  // another version, or damaged. The Graph, states and parts are read when they are asked for.
  explicit ExecutableFile(const std::string& path);
  explicit ExecutableFile(Container container);

  const std::string& path() const { return container_.path(); }
  const Container& container() const { return container_; }

  // Of the program, as it was compiled: threads, progress and log as in CompileOptions' defaults.
  // The Target may be more than this machine has: see load_executable().
  const CompileOptions& options() const { return options_; }

  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Nothing where there is none of that name.
  std::optional<std::string_view> metadata(std::string_view name) const;

  std::vector<std::string> part_names() const;
  bool has_part(std::string_view name) const;
  std::span<const std::byte> part(std::string_view name) const;  // Error where there is none

  bool has_states() const { return has_values_; }
  const std::vector<SavedState>& states() const { return states_; }  // types also without values
  // The value where it lies in the mapped file, its checksum compared; valid as long as the file
  // is. Error where it is damaged or there is none.
  std::span<const std::byte> state_value(size_t index) const;
  const std::vector<SavedNumber>& hyperparameters() const { return hyperparameters_; }
  const std::optional<RngState>& rng() const { return rng_; }

  // Error where the text is not one of a graph whose every node the operator table accepts; see
  // read_graph(). The signature is one of that graph.
  Graph graph(FromFile limit = FromFile::safe_host_calls) const;
  StepSignature signature() const;

 private:
  std::vector<Blob> blobs() const;

  Container container_;
  CompileOptions options_;
  std::map<std::string, std::string> metadata_;
  bool has_values_ = false;
  std::vector<SavedState> states_;
  std::vector<SavedNumber> hyperparameters_;
  std::optional<RngState> rng_;
};

// What a file's program is compiled with here: as it was, as far as the level of `now` goes; what
// concerns this machine and this compilation alone is that of `now`.
CompileOptions options_to_load(const ExecutableFile& file, const CompileOptions& now);

// Makes the file's program something that runs. The Graph is verified and lowered again, with
// options_to_load(). Error where the file is damaged or its parts do not fit each other.
std::shared_ptr<const Executable> load_executable(const ExecutableFile& file,
                                                  const CompileOptions& now = {});

// The same for a graph and a signature that were read from the file before.
std::shared_ptr<const Executable> load_executable(const ExecutableFile& file, Graph graph,
                                                  StepSignature signature,
                                                  const CompileOptions& now);

// Gives a session of that executable the file's states, numbers and random state, as far as the
// file has them. Error where they are not those of the session's executable.
void restore(Session& session, const ExecutableFile& file);

}  // namespace tessera
