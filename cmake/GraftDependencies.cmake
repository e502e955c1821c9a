# Finds what graft stands on. docs/dependencies.md says why each is here. Two prefixes are looked at first: `.venv` (torch) and
# `.deps` (headers carried to a machine with no package access, see scripts/bundle_deps.sh).
if(EXISTS ${PROJECT_SOURCE_DIR}/.deps)
  list(PREPEND CMAKE_PREFIX_PATH ${PROJECT_SOURCE_DIR}/.deps)
endif()

if(NOT Torch_DIR)
  set(_python ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  if(NOT EXISTS ${_python})
    find_program(_python_found python3 REQUIRED)
    set(_python ${_python_found})
  endif()
  execute_process(COMMAND ${_python} -c "import torch; print(torch.utils.cmake_prefix_path)"
                  OUTPUT_VARIABLE _torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE _failed)
  if(_failed)
    message(FATAL_ERROR "torch was not found by ${_python}. Run `make setup`, or give -DTorch_DIR=.../share/cmake/Torch.")
  endif()
  list(PREPEND CMAKE_PREFIX_PATH ${_torch_prefix})
endif()
set(_flags_before "${CMAKE_CXX_FLAGS}")
set(CMAKE_MESSAGE_LOG_LEVEL ERROR)  # torch warns of a library (kineto) that is inside its own
find_package(Torch REQUIRED QUIET)
unset(CMAKE_MESSAGE_LOG_LEVEL)
set(CMAKE_CXX_FLAGS "${_flags_before}")  # Torch's flags are for its own targets
if(Torch_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "graft needs torch 2.11 or newer, found ${Torch_VERSION}")
endif()

find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Threads REQUIRED)

find_path(GRAFT_PCRE2_INCLUDE pcre2.h REQUIRED)
find_library(GRAFT_PCRE2_LIBRARY pcre2-8 REQUIRED)
add_library(pcre2 INTERFACE)
target_include_directories(pcre2 SYSTEM INTERFACE $<BUILD_INTERFACE:${GRAFT_PCRE2_INCLUDE}>)
target_link_libraries(pcre2 INTERFACE ${GRAFT_PCRE2_LIBRARY})

find_path(GRAFT_XXHASH_INCLUDE xxhash.h REQUIRED)  # header-only: Debian has no package configuration for it
add_library(xxhash_headers INTERFACE)
target_include_directories(xxhash_headers SYSTEM INTERFACE $<BUILD_INTERFACE:${GRAFT_XXHASH_INCLUDE}>)

set(GRAFT_HAVE_ICU OFF)
find_package(ICU QUIET COMPONENTS uc)
if(ICU_FOUND)
  set(GRAFT_HAVE_ICU ON)
endif()

# torch has Gloo inside, and of its headers only its own: Debian's give the names of Gloo's classes, of which nothing is called.
set(GRAFT_HAVE_GLOO OFF)
find_path(GRAFT_GLOO_INCLUDE gloo/context.h)
if(GRAFT_GLOO_INCLUDE AND EXISTS "${TORCH_INSTALL_PREFIX}/include/torch/csrc/distributed/c10d/ProcessGroupGloo.hpp")
  set(GRAFT_HAVE_GLOO ON)
endif()

# Chat templates. What was fetched is mended first (scripts/patch_minja.py); another version is as good as none.
set(GRAFT_HAVE_MINJA OFF)
set(_minja ${PROJECT_SOURCE_DIR}/.deps/minja/upstream/minja.hpp)
set(GRAFT_MINJA_INCLUDE ${PROJECT_BINARY_DIR}/minja)
find_package(Python3 QUIET COMPONENTS Interpreter)
if(EXISTS ${_minja} AND Python3_FOUND)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/scripts/patch_minja.py ${_minja})
  execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/patch_minja.py ${_minja} ${GRAFT_MINJA_INCLUDE}/minja/minja.hpp
                  RESULT_VARIABLE _failed)
  if(NOT _failed)
    set(GRAFT_HAVE_MINJA ON)
  endif()
endif()

set(GRAFT_HAVE_LLVM OFF)
set(GRAFT_BUILT_LLVM OFF)
if(GRAFT_WITH_LLVM)
  find_package(LLVM 19.1 CONFIG QUIET)
  if(LLVM_FOUND)
    set(GRAFT_HAVE_LLVM ON)
    set(GRAFT_BUILT_LLVM ${LLVM_PACKAGE_VERSION})
  endif()
endif()

set(GRAFT_HAVE_CUDA OFF)
if(GRAFT_WITH_CUDA AND TARGET torch_cuda)
  set(GRAFT_HAVE_CUDA ON)
endif()

# torch's NCCL backend is in libtorch_cuda; its header wants NCCL's, which lies beside torch where pip installed both.
set(GRAFT_HAVE_NCCL OFF)
find_path(GRAFT_NCCL_INCLUDE nccl.h HINTS ${TORCH_INSTALL_PREFIX}/../nvidia/nccl/include)
if(GRAFT_HAVE_CUDA AND GRAFT_NCCL_INCLUDE AND EXISTS "${TORCH_INSTALL_PREFIX}/include/torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp")
  set(GRAFT_HAVE_NCCL ON)
endif()
