# The library that other projects link: plimsoll::plimsoll, one archive, or one shared library with BUILD_SHARED_LIBS. It holds the objects of
# every folder of src/ but cli; docs/embedding.md tells how it is used.
#
# What it links is written out here and not taken from the folders: they are not installed, and what only their sources include (nlohmann_json)
# is nothing to link.
get_property(folders DIRECTORY PROPERTY PLIMSOLL_FOLDERS)
list(TRANSFORM folders REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
add_library(plimsoll_library ${folders})
add_library(plimsoll::plimsoll ALIAS plimsoll_library)
set_target_properties(plimsoll_library PROPERTIES OUTPUT_NAME plimsoll EXPORT_NAME plimsoll LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
target_compile_features(plimsoll_library INTERFACE cxx_std_20)
target_include_directories(plimsoll_library INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
target_link_libraries(plimsoll_library PUBLIC tl::expected PRIVATE fmt::fmt OpenMP::OpenMP_CXX Threads::Threads ${PLIMSOLL_INFLATE_LIBRARIES} JPEG::JPEG PNG::PNG)
if(PLIMSOLL_CPU)
  target_link_libraries(plimsoll_library PRIVATE DNNL::dnnl)
endif()
if(PLIMSOLL_HAS_CUDA)
  target_link_libraries(plimsoll_library PRIVATE CUDA::cudart_static ${CMAKE_DL_LIBS})
endif()
if(BUILD_SHARED_LIBS)
  target_link_options(plimsoll_library PRIVATE LINKER:--exclude-libs,ALL)  # such as CUDA's static runtime
endif()

if(PLIMSOLL_INSTALL)
  include(GNUInstallDirs)
  include(CMakePackageConfigHelpers)
  set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/plimsoll)
  get_target_property(PLIMSOLL_LIBRARY_TYPE plimsoll_library TYPE)
  configure_package_config_file(cmake/plimsollConfig.cmake.in ${PROJECT_BINARY_DIR}/plimsollConfig.cmake INSTALL_DESTINATION ${package_folder})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/plimsollConfigVersion.cmake COMPATIBILITY SameMajorVersion)
  install(TARGETS plimsoll_library EXPORT plimsollTargets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT plimsollTargets NAMESPACE plimsoll:: DESTINATION ${package_folder})
  install(FILES ${PROJECT_BINARY_DIR}/plimsollConfig.cmake ${PROJECT_BINARY_DIR}/plimsollConfigVersion.cmake DESTINATION ${package_folder})
  install(DIRECTORY include/plimsoll DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()
