# GRAFT_GROUPED: sources that can be compiled as one file are (scripts/group_sources.py says which). What they all include is read once,
# and what they all instantiate is compiled once: a clean build takes half the time. A changed file costs its group (a file's name chooses
# its group, so that ccache knows the others); the preset `dev` compiles file by file. After a change that makes two files of a group clash
# ("redefinition of ..."), run cmake again.
set(GRAFT_GROUP_LINES 3000)  # twice as many saves a twentieth more, and takes more memory
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/scripts/group_sources.py)

function(graft_group_target target)
  get_target_property(_folder ${target} SOURCE_DIR)
  get_target_property(_all ${target} SOURCES)
  set(_sources)
  foreach(_source IN LISTS _all)
    if(_source MATCHES "\\.cpp$" AND NOT _source MATCHES "^\\$<")
      get_filename_component(_path ${_source} ABSOLUTE BASE_DIR ${_folder})
      list(APPEND _sources ${_path})
    endif()
  endforeach()
  list(LENGTH _sources _count)
  if(_count LESS 2 OR NOT GRAFT_GROUPED OR NOT Python3_FOUND)
    return()
  endif()
  execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/group_sources.py --lines ${GRAFT_GROUP_LINES} ${_sources}
                  OUTPUT_VARIABLE _lines OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" _lines "${_lines}")
  foreach(_line IN LISTS _lines)
    string(REGEX MATCH "^([0-9]+) (.*)$" _match "${_line}")
    set_source_files_properties(${CMAKE_MATCH_2} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${CMAKE_MATCH_1})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# All targets of a folder and of those below it.
function(graft_group_folder folder)
  get_directory_property(_targets DIRECTORY ${folder} BUILDSYSTEM_TARGETS)
  foreach(_target IN LISTS _targets)
    get_target_property(_type ${_target} TYPE)
    if(_type MATCHES "LIBRARY|EXECUTABLE" AND NOT _type STREQUAL "INTERFACE_LIBRARY")
      graft_group_target(${_target})
    endif()
  endforeach()
  get_directory_property(_below DIRECTORY ${folder} SUBDIRECTORIES)
  foreach(_folder IN LISTS _below)
    graft_group_folder(${_folder})
  endforeach()
endfunction()
