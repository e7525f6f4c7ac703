# How every folder of the tree becomes targets: its sources one static library, its *_test.cpp one
# GoogleTest program. A new file in a folder needs no line here.

option(TESSERA_PRECOMPILED "Precompile common headers" ON)
find_program(TESSERA_CCACHE ccache)
if(TESSERA_CCACHE)  # precompiled headers need its leave
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${TESSERA_CCACHE})
endif()

add_library(tessera_flags INTERFACE)
target_include_directories(tessera_flags INTERFACE
  $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
target_compile_features(tessera_flags INTERFACE cxx_std_20)
target_compile_options(tessera_flags INTERFACE "$<BUILD_INTERFACE:-Wall;-Wextra;-Werror>")
if(TESSERA_SANITIZE)
  add_compile_options(-fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TESSERA_SANITIZE})
endif()

# What reads files tells a fuzzer which way it went (tests/readers); other programs do not listen.
function(tessera_counts_coverage target)
  if(NOT TARGET tessera_uncounted)
    add_library(tessera_uncounted STATIC ${CMAKE_SOURCE_DIR}/tests/readers/uncounted.cpp)
  endif()
  target_compile_options(${target} PRIVATE -fsanitize-coverage=trace-pc,trace-cmp)
  target_link_libraries(${target} PUBLIC tessera_uncounted)
endfunction()

# Most files take less time to compile than the headers of others that they include. So these are
# compiled once for each set of flags, and the targets that share the flags share them:
#   tessera_precompile(target FROM first [headers...])
# compiles them for the target `first`, and lends them to every later one. An #include that is missing
# is noticed where nothing is precompiled: the tsan preset.
function(tessera_precompile target)
  cmake_parse_arguments(arg "" FROM "" ${ARGN})
  if(NOT TESSERA_PRECOMPILED)
    return()
  endif()
  if(target STREQUAL arg_FROM)
    target_precompile_headers(${target} PRIVATE <algorithm> <functional> <map> <memory> <optional>
      <span> <string> <vector> <fmt/format.h> ${arg_UNPARSED_ARGUMENTS})
  else()
    target_precompile_headers(${target} REUSE_FROM ${arg_FROM})
  endif()
endfunction()

# Of PyTorch's headers that is not enough: every file instantiates their templates again. Files that
# include them are compiled four at a time, so their unnamed namespaces must get along.
function(tessera_includes_torch target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4)
  tessera_uses_vector_bool(${target})
endfunction()

# From 13 on GCC sees writes out of bounds in its own vector<bool>, which autograd's functions and some
# tests use; there are none.
function(tessera_uses_vector_bool target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-stringop-overflow
      -Wno-stringop-overread)
  endif()
endfunction()

# Code for one kind of processor is in folders of its name; everything else compiles without them. What
# others need of them has a second, empty definition: x86/ and no_x86.cpp beside it.
function(tessera_for_processor list)
  set(files ${${list}})
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    list(FILTER files EXCLUDE REGEX "/no_x86\\.cpp$")
  else()
    list(FILTER files EXCLUDE REGEX "/x86/")
  endif()
  set(${list} ${files} PARENT_SCOPE)
endfunction()

# tessera_folder(name [TORCH] [LIBS libs...]). TORCH: its sources, or its tests, include PyTorch's headers.
function(tessera_folder name)
  cmake_parse_arguments(arg TORCH "" LIBS ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.cpp)
  tessera_for_processor(sources)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "_(test|main)\\.cpp$")
  if(sources)
    add_library(${name} STATIC ${sources})
    target_link_libraries(${name} PUBLIC tessera_flags ${arg_LIBS})
    if(TESSERA_FUZZ AND name MATCHES "^tessera_(ir|passes|runtime|files)$")
      tessera_counts_coverage(${name})
    endif()
    if(arg_TORCH)
      tessera_precompile(${name} FROM tessera_torch <ATen/ATen.h>)
      tessera_includes_torch(${name})
    else()
      tessera_precompile(${name} FROM tessera_base)
    endif()
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE tessera_flags ${arg_LIBS})
  endif()
  if(tests AND TESSERA_TESTS)
    set(kind LABELS unit)
    if(arg_TORCH)
      set(kind TORCH LABELS parity)
    endif()
    tessera_test(${name}_test SOURCES ${tests} LIBS ${name} ${kind})
  endif()
endfunction()

# Where the checkout is, for tests that read files of it. In a file of its own: with the path among the
# flags of every test, a compiler cache would serve no second checkout.
configure_file(${CMAKE_CURRENT_LIST_DIR}/checkout_for_test.cpp.in
               ${CMAKE_BINARY_DIR}/checkout_for_test.cpp)
add_library(tessera_checkout STATIC EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/checkout_for_test.cpp)
target_link_libraries(tessera_checkout PRIVATE tessera_flags)

# tessera_test(name [TORCH] SOURCES files... LIBS libs... LABELS labels...): one program, which is one
# ctest.
function(tessera_test name)
  cmake_parse_arguments(arg TORCH "" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} tessera_checkout GTest::gtest GTest::gtest_main)
  # Tests are compiled more often than they run long.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(arg_TORCH)
    # Capture reads the user's lines from debug information.
    target_compile_options(${name} PRIVATE -g1)
    tessera_includes_torch(${name})
  else()
    tessera_uses_vector_bool(${name})
    tessera_precompile(${name} FROM tessera_base_test <gtest/gtest.h>)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}")
  tessera_own_devices(${name})
endfunction()

# A test has virtual IPUs of its own: it neither waits for a user's training, nor disturbs it or
# another test.
function(tessera_own_devices test)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/Testing/devices)
  set_tests_properties(${test} PROPERTIES ENVIRONMENT_MODIFICATION
    "TESSERA_DEVICE_DIR=set:${CMAKE_BINARY_DIR}/Testing/devices/${test}")
endfunction()
