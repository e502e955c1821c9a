# Language level, warnings, sanitizers, compiler cache: what every target of ours shares.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# One flag for libraries and programs alike (CMake would choose -fPIC and -fPIE): the precompiled header must serve both.
add_compile_options(-fPIC)
option(BUILD_SHARED_LIBS "Build libgraft as a shared library" ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# The hot loops are in torch and in generated code: -O3 on ours only costs build time.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

# First of all libraries: torch 2.11 has parts of libstdc++ (std::filesystem) inside that call functions it has not, and the first
# library to have a name wins.
add_link_options(-Wl,--push-state,--no-as-needed,-lstdc++,--pop-state)

find_program(GRAFT_CCACHE ccache)
if(GRAFT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without these ccache refuses anything that uses a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_DEPEND=1  # no file is preprocessed only to look it up: the compiler says what it read
      CCACHE_INODECACHE=1  # else it hashes the precompiled header, 600 MB, for each file
      ${GRAFT_CCACHE})
endif()

add_library(graft_options INTERFACE)
target_compile_options(graft_options INTERFACE -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(graft_options INTERFACE -fpch-preprocess)  # lets ccache see through a precompiled header
else()
  # Else the header's file has the times of all that it was made of inside: in a new clone everything would be compiled again, since it is
  # another one to ccache.
  target_compile_options(graft_options INTERFACE "SHELL:-Xclang -fno-pch-timestamp")
endif()

# The options that a sanitizer ("address,undefined") needs to compile and to link, as two lists.
function(graft_sanitizer_options sanitizer compile_result link_result)
  set(compile -fsanitize=${sanitizer} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND compile -Wno-maybe-uninitialized)  # false ones, from instrumented code
  else()
    # These look for marks and types that only clang leaves: there are none in generated kernels and in torch.
    list(APPEND compile -fno-sanitize=function,vptr)
  endif()
  set(${compile_result} ${compile} PARENT_SCOPE)
  set(${link_result} -fsanitize=${sanitizer} PARENT_SCOPE)
endfunction()

if(GRAFT_SANITIZE)
  graft_sanitizer_options(${GRAFT_SANITIZE} _compile _link)
  target_compile_options(graft_options INTERFACE ${_compile})
  target_link_options(graft_options INTERFACE ${_link})
endif()
