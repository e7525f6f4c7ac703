// Functions that run before and after every compilation in this process, in the order in which they
// were registered.
#pragma once

#include <cstdint>
#include <functional>

namespace tessera {

class CompileHook {
 public:
  explicit CompileHook(int64_t id) : id_(id) {}
  void remove() const;  // a second time it does nothing

 private:
  int64_t id_;
};

CompileHook registerPreCompileHook(std::function<void()> hook);
CompileHook registerPostCompileHook(std::function<void()> hook);

// Runs `compile` between the hooks. Those of the end run when it throws, too: they may have to undo
// what those of the beginning did.
void compile_between_hooks(const std::function<void()>& compile);

}  // namespace tessera
