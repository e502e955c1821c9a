# cmake --install, and what find_package(graft) needs afterwards.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS graft EXPORT graftTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS graft_tool graft_opt RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/graft DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT graftTargets NAMESPACE graft:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/graft)
configure_package_config_file(cmake/graftConfig.cmake.in ${PROJECT_BINARY_DIR}/graftConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/graft)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/graftConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/graftConfig.cmake ${PROJECT_BINARY_DIR}/graftConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/graft)
# torch lives in a Python environment, not in a system folder: keep the path to it in what is installed.
set_target_properties(graft graft_tool graft_opt PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/../${CMAKE_INSTALL_LIBDIR};${TORCH_INSTALL_PREFIX}/lib")
