// Between Python and C++: conversion only, no rules.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera {

class Executor;

void bind_errors(pybind11::module_& module);
void bind_logging(pybind11::module_& module);
void bind_options(pybind11::module_& module);
void bind_optimizer(pybind11::module_& module);  // before executors, which take one
void bind_executor(pybind11::module_& module);
// What an executor tells about its program and its last call.
void bind_inspection(pybind11::class_<Executor>& executor);
// Its files.
void bind_saving(pybind11::module_& module, pybind11::class_<Executor>& executor);
void bind_batches(pybind11::module_& module);
void bind_capture(pybind11::module_& module);
void bind_process(pybind11::module_& module);
void bind_instances(pybind11::module_& module);

// Ctrl-C: Python only notes it; its handler runs when somebody asks. Takes the GIL.
void raise_pending_signal();

// Throws an exception of ours as a Python one that forward may catch as a RuntimeError, and PyTorch
// hands on as it is; and what such a one stands for, null for any other exception. Both take the
// GIL.
[[noreturn]] void throw_as_python_error(const std::exception_ptr& error);
std::exception_ptr carried_by_python_error(const std::exception_ptr& error);

// Where the user's Python code is: the innermost frame outside of torch and of our packages, and
// the module whose forward runs. Files whose path holds one of `excludes` are not the user's
// either. Takes the GIL.
Origin python_origin(const std::vector<std::string>& excludes);

// The line of the user's program that called us, as file:line; for errors. Needs the GIL.
std::string python_call_site();

// The dotted path of the module whose forward runs now; kept by the Python side while capturing.
void push_module(std::string path);
void pop_module();
void clear_modules();

}  // namespace tessera
