# What `cmake --install` puts under the prefix: bin/tessera, poprun and the gc- programs, the static libraries
# and headers of the C++ interface with a CMake package for them (find_package(Tessera) gives
# Tessera::tessera, and without PyTorch Tessera::core), and the Python packages. To be included last,
# when all targets are there. Over pip's PyTorch only Python's packages are of use, and pip installs
# those: C++ programs are for Debian's.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS tessera poprun gc-monitor gc-info gc-inventory
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TESSERA_TORCH_ROOT)
  return()
endif()
if(TARGET tessera_mpi)
  install(TARGETS tessera_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tessera)
endif()

# Of the folders' libraries, those that `target` is made of; a new folder needs no line here.
function(tessera_libraries_of target result)
  set(found ${${result}})
  if(target IN_LIST found)
    return()
  endif()
  list(APPEND found ${target})
  get_target_property(linked ${target} INTERFACE_LINK_LIBRARIES)
  foreach(library IN LISTS linked)
    if(library MATCHES "^tessera_")
      tessera_libraries_of(${library} found)
    endif()
  endforeach()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

# What runs exported models is a set of its own, which knows nothing of PyTorch.
set(core)
tessera_libraries_of(tessera_files core)
set_target_properties(tessera_files PROPERTIES EXPORT_NAME core)
install(TARGETS ${core} EXPORT TesseraCoreTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/tessera)
set(headers tessera/files/exported_model.h)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)
install(EXPORT TesseraCoreTargets NAMESPACE Tessera:: DESTINATION ${package})
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/TesseraConfig.cmake.in
                              ${CMAKE_BINARY_DIR}/TesseraConfig.cmake
                              INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/TesseraConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/TesseraConfig.cmake ${CMAKE_BINARY_DIR}/TesseraConfigVersion.cmake
        DESTINATION ${package})

if(TESSERA_TORCH)
  set(libraries)
  tessera_libraries_of(tessera_api libraries)
  list(REMOVE_ITEM libraries ${core})
  set_target_properties(tessera_api PROPERTIES EXPORT_NAME tessera)
  install(TARGETS ${libraries} EXPORT TesseraTargets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/tessera)
  install(EXPORT TesseraTargets NAMESPACE Tessera:: DESTINATION ${package})
  list(APPEND headers tessera/tessera.h)
endif()

# Which headers these include is found out when they are installed.
install(CODE "set(source \"${CMAKE_SOURCE_DIR}\")
set(destination include)
set(headers \"${headers}\")")
install(SCRIPT ${CMAKE_SOURCE_DIR}/cmake/InstallHeaders.cmake)
if(NOT TESSERA_TORCH)
  return()
endif()

# Where Debian's Python looks below /usr/local, which is also the default prefix.
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter)
set(TESSERA_PYTHON_DIR lib/python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}/dist-packages
    CACHE STRING "Where the Python packages go, below the prefix")
install(TARGETS poptorch_core LIBRARY DESTINATION ${TESSERA_PYTHON_DIR}/poptorch)
if(TARGET tessera_mpi)  # beside the module, which opens it
  install(TARGETS tessera_mpi LIBRARY DESTINATION ${TESSERA_PYTHON_DIR}/poptorch)
endif()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/python/ DESTINATION ${TESSERA_PYTHON_DIR}
        FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN py.typed PATTERN __pycache__ EXCLUDE)
install(FILES ${CMAKE_BINARY_DIR}/python/poptorch/_build.py
        DESTINATION ${TESSERA_PYTHON_DIR}/poptorch)
# What pip would write too: by its entry points torch.compile() finds the backend.
install(DIRECTORY ${CMAKE_BINARY_DIR}/python/poptorch-0.dist-info DESTINATION ${TESSERA_PYTHON_DIR})
