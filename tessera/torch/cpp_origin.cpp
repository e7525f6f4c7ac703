#include "tessera/torch/cpp_origin.h"

#include <backtrace.h>
#include <c10/util/Type.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace tessera {
namespace {

void ignore_error(void*, const char*, int) {}

backtrace_state* symbols() {
  static backtrace_state* state =
      backtrace_create_state(nullptr, /*threaded=*/1, ignore_error, nullptr);
  return state;
}

// Code that runs between the user's forward and us.
bool is_library_code(std::string_view file) {
  for (const std::string_view part :
       {"/include/torch/", "/include/ATen/", "/include/c10/", "/c++/", "/tessera/torch/",
        "/tessera/api/", "/include/tessera/", "../sysdeps/", "../csu/"}) {
    if (file.find(part) != std::string_view::npos) return true;
  }
  return false;
}

// The class of a forward() from its demangled name, "at::Tensor a::Net::forward<int>(int)" gives
// "a::Net"; empty for any other function.
std::string class_of_forward(std::string_view function) {
  size_t end = function.find("::forward(");
  if (end == std::string_view::npos) end = function.find("::forward<");
  if (end == std::string_view::npos) return {};
  // A template's name begins with its result type. Blanks inside brackets belong to a name.
  size_t begin = end;
  int depth = 0;
  while (begin > 0) {
    const char before = function[begin - 1];
    if (before == '>' || before == ')') ++depth;
    if (before == '<' || before == '(') --depth;
    if (depth < 0 || (before == ' ' && depth == 0)) break;
    --begin;
  }
  return std::string(function.substr(begin, end - begin));
}

void take_symbol(void* context, uintptr_t, const char* symbol, uintptr_t, uintptr_t) {
  if (symbol) *static_cast<std::string*>(context) = symbol;
}

// Asking a library's symbols and demangling take time, and a loop comes by the same places.
const std::string& class_running(uintptr_t pc, const char* function) {
  static thread_local std::unordered_map<uintptr_t, std::string> by_place;
  static thread_local std::unordered_map<std::string, std::string> by_function;
  if (!function) {
    const auto [at, fresh] = by_place.try_emplace(pc);
    if (!fresh) return at->second;
    std::string symbol;
    backtrace_syminfo(symbols(), pc, take_symbol, ignore_error, &symbol);
    at->second = class_of_forward(c10::demangle(symbol.c_str()));
    return at->second;
  }
  const auto [at, fresh] = by_function.try_emplace(function);
  if (fresh) at->second = class_of_forward(c10::demangle(function));
  return at->second;
}

struct Stack {
  Origin origin;
  std::vector<std::string> running;  // classes whose forward is on the stack, innermost first
};

int take_frame(void* context, uintptr_t pc, const char* file, int line, const char* function) {
  auto* stack = static_cast<Stack*>(context);
  const std::string& running = class_running(pc, function);
  if (!running.empty()) stack->running.push_back(running);
  if (!stack->origin.file.empty() || !file || is_library_code(file)) return 0;
  stack->origin.file = file;
  stack->origin.line = line;
  return 0;
}

bool is_below(const std::string& path, const std::string& parent) {
  if (parent.empty()) return !path.empty();
  return path.size() > parent.size() && path.starts_with(parent) && path[parent.size()] == '.';
}

bool is_child(const std::string& path, const std::string& parent) {
  if (!is_below(path, parent)) return false;
  return path.find('.', parent.empty() ? 0 : parent.size() + 1) == std::string::npos;
}

}  // namespace

CppLocator::CppLocator(std::vector<ModuleClass> modules) : modules_(std::move(modules)) {}

Origin CppLocator::operator()() {
  Stack stack;
  if (symbols()) backtrace_full(symbols(), /*skip=*/1, take_frame, ignore_error, &stack);
  std::reverse(stack.running.begin(), stack.running.end());
  stack.origin.module = module_path(stack.running);
  return stack.origin;
}

std::string CppLocator::module_path(const std::vector<std::string>& running) {
  if (modules_.empty()) return {};
  const ModuleClass* at = &modules_.front();
  for (const std::string& name : running) {
    const ModuleClass* below = nullptr;
    size_t count = 0;
    for (const ModuleClass& module : modules_) {
      if (module.name != name || !is_below(module.path, at->path)) continue;
      below = &module;
      ++count;
    }
    if (count > 1) below = next_child(*at, name);
    if (count > 1 && !below) break;
    if (below) at = below;
  }
  return at->path;
}

const ModuleClass* CppLocator::next_child(const ModuleClass& sequential, const std::string& name) {
  if (sequential.name != "torch::nn::SequentialImpl") return nullptr;
  const ModuleClass*& newest = newest_child_[sequential.path];
  if (newest && newest->name == name) return newest;
  const ModuleClass* first = nullptr;
  for (const ModuleClass& module : modules_) {
    if (module.name != name || !is_child(module.path, sequential.path)) continue;
    if (!first) first = &module;
    if (newest && &module <= newest) continue;
    return newest = &module;
  }
  return newest = first;  // the Sequential runs once more
}

}  // namespace tessera
