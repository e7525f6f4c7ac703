#include "tessera/api/executor/compile_hooks.h"

#include <map>
#include <memory>
#include <mutex>

#include "tessera/base/error.h"
#include "tessera/base/log.h"

namespace tessera {
namespace {

enum class When { before, after };

struct Hook {
  When when;
  // Shared: copying a function of another language may have to wait for that language.
  std::shared_ptr<const std::function<void()>> run;
};

std::mutex mutex;

// By id, which grows: in the order of registration. Never destroyed, for hooks may hold objects of
// a language that ends before us.
std::map<int64_t, Hook>& hooks() {
  static auto* all = new std::map<int64_t, Hook>;
  return *all;
}

CompileHook add(When when, std::function<void()> hook) {
  check(hook != nullptr, ErrorKind::runtime, "a compile hook must be a function, got an empty one");
  const std::lock_guard lock(mutex);
  static int64_t next = 0;
  hooks().emplace(next, Hook{when, std::make_shared<std::function<void()>>(std::move(hook))});
  return CompileHook(next++);
}

void run(When when) {
  std::map<int64_t, Hook> now;  // a hook may register and remove hooks
  {
    const std::lock_guard lock(mutex);
    now = hooks();
  }
  for (const auto& [id, hook] : now) {
    if (hook.when == when) (*hook.run)();
  }
}

}  // namespace

void CompileHook::remove() const {
  const std::lock_guard lock(mutex);
  hooks().erase(id_);
}

CompileHook registerPreCompileHook(std::function<void()> hook) {
  return add(When::before, std::move(hook));
}

CompileHook registerPostCompileHook(std::function<void()> hook) {
  return add(When::after, std::move(hook));
}

void compile_between_hooks(const std::function<void()>& compile) {
  run(When::before);
  try {
    compile();
  } catch (...) {
    try {
      run(When::after);
    } catch (const std::exception& error) {
      log(LogLevel::error, "a hook failed after a compilation that had failed: {}", error.what());
    }
    throw;
  }
  run(When::after);
}

}  // namespace tessera
