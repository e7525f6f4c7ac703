# PyTorch for C++: TORCH_LIBRARIES, TORCH_INCLUDE_DIRS and its version. Debian's has CMake files of its
# own. Those of the wheels that pip installs ask for everything the wheel was built with, CUDA among it,
# which a program for CPUs does not need: there a folder of headers and libraries is enough.
set(TESSERA_TORCH_ROOT "" CACHE PATH "The folder of pip's PyTorch, .../site-packages/torch; else Debian's")
if(NOT TESSERA_TORCH_ROOT)
  set(TESSERA_TORCH_SOURCE Debian)  # for messages, and because libraries of both do not mix
  find_package(Torch REQUIRED)
  return()
endif()

set(TESSERA_TORCH_SOURCE pip)
# Beside its own headers a wheel has those of libraries that are hidden in it, fmt and oneDNN among them,
# in versions that are not Debian's, which we link. So we look only into the folders that are PyTorch's,
# and into pybind11, with which PyTorch's own module was built.
set(headers ${CMAKE_BINARY_DIR}/torch-headers)
file(REMOVE_RECURSE ${headers})
file(MAKE_DIRECTORY ${headers})
foreach(folder ATen c10 caffe2 torch pybind11)
  if(IS_DIRECTORY ${TESSERA_TORCH_ROOT}/include/${folder})
    file(CREATE_LINK ${TESSERA_TORCH_ROOT}/include/${folder} ${headers}/${folder} SYMBOLIC)
  endif()
endforeach()
set(TORCH_INCLUDE_DIRS ${headers} ${headers}/torch/csrc/api/include)
set(TORCH_LIBRARIES ${TESSERA_TORCH_ROOT}/lib/libtorch_cpu.so ${TESSERA_TORCH_ROOT}/lib/libc10.so)
set(TORCH_PYTHON_LIBRARY ${TESSERA_TORCH_ROOT}/lib/libtorch_python.so)

foreach(part MAJOR MINOR)
  unset(Torch_VERSION_${part})
  # The second is where later releases have it.
  foreach(file torch/csrc/api/include/torch/version.h torch/headeronly/version.h)
    if(EXISTS ${headers}/${file} AND NOT DEFINED Torch_VERSION_${part})
      file(STRINGS ${headers}/${file} line REGEX "define TORCH_VERSION_${part} ")
      if(line MATCHES "([0-9]+)$")
        set(Torch_VERSION_${part} ${CMAKE_MATCH_1})
      endif()
    endif()
  endforeach()
  if(NOT DEFINED Torch_VERSION_${part})
    message(FATAL_ERROR "The headers in '${TESSERA_TORCH_ROOT}' do not say which PyTorch they are of")
  endif()
endforeach()
message(STATUS "PyTorch ${Torch_VERSION_MAJOR}.${Torch_VERSION_MINOR} in ${TESSERA_TORCH_ROOT}")
