# The core's dependencies when compiling for another machine, as the targets that find_package would
# give. Nothing has to be installed for that machine: headers and sources are the same everywhere.

# Links to single folders: /usr/include itself has this machine's C library.
foreach(folder fmt CLI nlohmann)
  find_path(TESSERA_${folder}_PARENT ${folder} PATHS /usr/include NO_DEFAULT_PATH REQUIRED)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include)
  file(CREATE_LINK ${TESSERA_${folder}_PARENT}/${folder} ${CMAKE_BINARY_DIR}/include/${folder}
       SYMBOLIC)
endforeach()
# Of what consists of two headers.
find_path(TESSERA_XXHASH_FOLDER xxhash.h PATHS /usr/include NO_DEFAULT_PATH REQUIRED)
foreach(header xxhash.h xxh3.h)
  file(CREATE_LINK ${TESSERA_XXHASH_FOLDER}/${header} ${CMAKE_BINARY_DIR}/include/${header} SYMBOLIC)
endforeach()
foreach(package fmt::fmt CLI11::CLI11)
  add_library(${package} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${package} SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/include)
endforeach()
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)

if(TESSERA_TESTS)
  set(BUILD_GMOCK OFF)
  set(INSTALL_GTEST OFF)
  add_subdirectory(/usr/src/googletest ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
endif()
