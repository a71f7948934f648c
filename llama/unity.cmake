# Compiles the many small files of two of llama.cpp's libraries in batches: they
# all read the same large headers. Nothing of llama.cpp is changed. It is read as
# CMAKE_PROJECT_INCLUDE, before the libraries exist, hence the deferred calls.
#
# Left out are files that cannot share a translation unit: gemma4.cpp has a
# helper of the same name as gemma3n.cpp, and mtmd-helper*.cpp refuse to see
# mtmd's internal headers.
cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL
  set_target_properties llama mtmd PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL
  set_source_files_properties "${CMAKE_SOURCE_DIR}/src/models/gemma4.cpp"
  TARGET_DIRECTORY llama PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL
  set_source_files_properties "${CMAKE_SOURCE_DIR}/tools/mtmd/mtmd-helper.cpp" "${CMAKE_SOURCE_DIR}/tools/mtmd/mtmd-helper-gen.cpp"
  TARGET_DIRECTORY mtmd PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
