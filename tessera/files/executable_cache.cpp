#include "tessera/files/executable_cache.h"

#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <optional>
#include <utility>

#include "tessera/base/build_id.h"
#include "tessera/base/digest.h"
#include "tessera/base/error.h"
#include "tessera/base/file_lock.h"
#include "tessera/base/log.h"
#include "tessera/files/executable_file.h"
#include "tessera/files/source_lines.h"
#include "tessera/ops/host_call.h"
#include "tessera/runtime/program_key.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What another build of ours makes of a graph, or another format keeps of it, is another program.
std::string key_of(const CacheRequest& request) {
  Digest digest;
  digest.add(compile_key(request.program, request.options));
  digest.add(build_id()).add(container_version);
  if (!host_calls(request.graph).empty()) digest.add(request.host);
  return digest.hex();
}

// Without the list of what was going on.
std::string sentence_of(const std::exception& error) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  return ours ? ours->message() : error.what();
}

double parse_seconds(std::string_view text) {
  double seconds = 0;
  std::from_chars(text.data(), text.data() + text.size(), seconds);
  return seconds;
}

// One program's place in a folder.
class Entry {
 public:
  Entry(const std::string& folder, const CacheRequest& request)
      : request_(request),
        key_(key_of(request)),
        name_(request.graph.name),
        lines_(source_lines(request.graph)),
        path_(fs::path(folder) / (key_ + ".poptorch")) {}

  std::string lock_path() const { return fs::path(path_).replace_extension(".lock"); }

  // Nothing where there is none that can be used.
  std::optional<CacheResult> find() {
    log(LogLevel::debug, "executable cache: program {}, to be found as '{}'{}", request_.program,
        path_, is_there() ? "" : ", which is not there");
    if (!is_there()) return std::nullopt;
    try {
      return load();
    } catch (const std::exception& error) {
      if (std::exchange(warned_, true)) return std::nullopt;
      log(LogLevel::warn,
          "the executable cache has a file that cannot be used; the program is compiled, and takes "
          "its place: {}",
          sentence_of(error));
      return std::nullopt;
    }
  }

  void keep(const CacheResult& result) const {
    try {
      check_host_calls_of_file(result.executable->graph());
    } catch (const Error& error) {
      log(LogLevel::info, "not kept in the executable cache: {}", error.message());
      return;
    }
    try {
      write_executable(
          path_, {.executable = result.executable.get(),
                  .options = request_.options,
                  .metadata = {{"cache key", key_},
                               {"compile seconds", fmt::format("{:.6f}", result.compile_seconds)},
                               {"source lines", print_lines(lines_)}}});
      log(LogLevel::info, "kept in the executable cache: '{}'", path_);
    } catch (const std::exception& error) {
      log(LogLevel::warn, "the program could not be kept in the executable cache: {}",
          sentence_of(error));
    }
  }

 private:
  // A link that leads nowhere, or a folder of that name, is there too.
  bool is_there() const {
    std::error_code ignored;
    return fs::symlink_status(path_, ignored).type() != fs::file_type::not_found;
  }

  CacheResult load() const {
    const auto start = Clock::now();
    const ExecutableFile file(path_);
    file.container().check_all();
    check(file.metadata("cache key") == key_, "'{}' holds another program than its name says",
          path_);
    Graph graph = file.graph();
    move_lines(graph, parse_lines(file.metadata("source lines").value_or("")), lines_);
    graph.name = name_;
    CompileOptions options = request_.options;
    options.tuned_kernels = file.options().tuned_kernels;
    CacheResult result{.executable = compile_step(std::move(graph), request_.signature, options),
                       .is_hit = true};
    result.load_seconds = seconds_since(start);
    result.compile_seconds = parse_seconds(file.metadata("compile seconds").value_or("0"));
    log(LogLevel::info,
        "'{}' was found in the executable cache: loading took {:.0f} ms, compiling had taken "
        "{:.0f} ms ('{}')",
        result.executable->graph().name, 1e3 * result.load_seconds, 1e3 * result.compile_seconds,
        path_);
    return result;
  }

  const CacheRequest& request_;
  std::string key_, name_;
  std::vector<SourceLine> lines_;
  std::string path_;
  bool warned_ = false;
};

CacheResult compiled(CacheRequest& request) {
  const auto start = Clock::now();
  CacheResult result{.executable = compile(std::move(request.graph), std::move(request.signature),
                                           request.options)};
  result.compile_seconds = seconds_since(start);
  return result;
}

}  // namespace

ExecutableCache::ExecutableCache(std::string folder, std::chrono::milliseconds patience)
    : folder_(folder.empty() ? "." : std::move(folder)), patience_(patience) {
  std::error_code error;
  if (fs::is_directory(folder_, error)) {
    usable_ = true;
    return;
  }
  error.clear();
  usable_ = fs::create_directories(folder_, error);
  if (usable_) {
    log(LogLevel::warn, "Specified directory not found. Creating \"{}\" directory", folder_);
    return;
  }
  usable_ = fs::is_directory(folder_, error);  // another process was faster
  if (usable_) return;
  log(LogLevel::warn,
      "enableExecutableCaching: '{}' is no folder and cannot become one ({}); programs are "
      "compiled "
      "without a cache",
      folder_, error ? error.message() : "there is something else of that name");
}

bool ExecutableCache::is_writable() const {
  return usable_ && access(folder_.c_str(), W_OK | X_OK) == 0;
}

CacheResult ExecutableCache::find_or_compile(CacheRequest request) const {
  if (!usable_) return compiled(request);
  Entry entry(folder_, request);
  if (auto found = entry.find()) return std::move(*found);
  const FileLock lock(entry.lock_path(), patience_, request.poll);
  if (lock.timed_out()) {
    log(LogLevel::warn,
        "another process has been compiling the same program for {} s; not waiting any longer",
        std::chrono::duration_cast<std::chrono::seconds>(patience_).count());
  }
  if (lock.is_held()) {
    // Somebody may have been faster while nobody had the lock.
    if (auto found = entry.find()) return std::move(*found);
  }
  CacheResult result = compiled(request);
  entry.keep(result);
  return result;
}

}  // namespace tessera
