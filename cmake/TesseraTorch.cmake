# PyTorch for C++: TORCH_LIBRARIES, TORCH_INCLUDE_DIRS and its version. Debian's has CMake files of its
# own. Those of the wheels that pip installs ask for everything the wheel was built with, CUDA among it,
# which a program for CPUs does not need: there a folder of headers and libraries is enough.
set(TESSERA_TORCH_ROOT "" CACHE PATH "The folder of pip's PyTorch, .../site-packages/torch; else Debian's")
if(NOT TESSERA_TORCH_ROOT)
  find_package(Torch REQUIRED)
  return()
endif()

set(TORCH_INCLUDE_DIRS ${TESSERA_TORCH_ROOT}/include ${TESSERA_TORCH_ROOT}/include/torch/csrc/api/include)
set(TORCH_LIBRARIES ${TESSERA_TORCH_ROOT}/lib/libtorch_cpu.so ${TESSERA_TORCH_ROOT}/lib/libc10.so)
foreach(part MAJOR MINOR)
  file(STRINGS ${TESSERA_TORCH_ROOT}/include/torch/csrc/api/include/torch/version.h line
       REGEX "define TORCH_VERSION_${part} ")
  string(REGEX MATCH "[0-9]+" Torch_VERSION_${part} "${line}")
endforeach()
message(STATUS "PyTorch ${Torch_VERSION_MAJOR}.${Torch_VERSION_MINOR} in ${TESSERA_TORCH_ROOT}")
