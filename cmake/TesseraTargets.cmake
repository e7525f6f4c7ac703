# How every folder of the tree becomes targets: its sources one static library, its *_test.cpp one
# GoogleTest program. A new file in a folder needs no line here.

option(TESSERA_PRECOMPILED "Precompile common headers" OFF)
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

# Builds under sanitizers are made to run tests once: there a common header spares parsing the standard
# library anew for every file. The release build has PyTorch's alone, which take longer to read than
# most files to compile; that an #include of anything else is missing is noticed there.
function(tessera_precompile target)
  if(TESSERA_PRECOMPILED)
    target_precompile_headers(${target} PRIVATE <algorithm> <functional> <map> <memory> <optional>
      <span> <string> <vector> <fmt/format.h> ${ARGN})
  endif()
endfunction()

function(tessera_precompile_torch target)
  target_precompile_headers(${target} PRIVATE <ATen/ATen.h> ${ARGN})
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

# tessera_folder(name [LIBS libs...] [TEST_LIBS libs...] [LABELS labels...])
function(tessera_folder name)
  cmake_parse_arguments(arg "" "" "LIBS;TEST_LIBS;LABELS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.cpp)
  tessera_for_processor(sources)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "_(test|main)\\.cpp$")
  if(sources)
    add_library(${name} STATIC ${sources})
    target_link_libraries(${name} PUBLIC tessera_flags ${arg_LIBS})
    tessera_precompile(${name})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE tessera_flags ${arg_LIBS})
  endif()
  if(tests AND TESSERA_TESTS)
    tessera_test(${name}_test SOURCES ${tests} LIBS ${name} ${arg_TEST_LIBS} LABELS ${arg_LABELS})
  endif()
endfunction()

# Where the checkout is, for tests that read files of it. In a file of its own: with the path among the
# flags of every test, a compiler cache would serve no second checkout.
configure_file(${CMAKE_CURRENT_LIST_DIR}/checkout_for_test.cpp.in
               ${CMAKE_BINARY_DIR}/checkout_for_test.cpp)
add_library(tessera_checkout STATIC EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/checkout_for_test.cpp)
target_link_libraries(tessera_checkout PRIVATE tessera_flags)

# tessera_test(name SOURCES files... LIBS libs... [LABELS labels...]): one program, which is one ctest.
function(tessera_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} tessera_checkout GTest::gtest GTest::gtest_main)
  # Tests are compiled more often than they run long.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  tessera_precompile(${name} <gtest/gtest.h>)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}")
endfunction()
