# The GPU backend. Its rules and profiles are always built, so that every build can plan for GPUs. The runtime is built if nvcc is found.
#
# Only cudart is linked, statically: the driver, cuDNN, cuBLASLt, NVRTC and NVML are loaded when a GPU is used, so one
# program runs with or without them.
set(PLIMSOLL_HAS_CUDA FALSE)
execute_process(COMMAND nvidia-smi -L RESULT_VARIABLE no_gpu OUTPUT_QUIET ERROR_QUIET)
if(NOT PLIMSOLL_CUDA STREQUAL OFF AND NOT (PLIMSOLL_CUDA STREQUAL IF_GPU AND no_gpu))
  find_program(PLIMSOLL_NVCC nvcc HINTS /usr/local/cuda/bin ENV CUDA_HOME PATH_SUFFIXES bin)
  find_path(PLIMSOLL_CUDNN_INCLUDE cudnn.h HINTS /usr/local/cuda/include)
  find_path(PLIMSOLL_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${PROJECT_SOURCE_DIR}/.deps/cudnn-frontend/include)
  if(PLIMSOLL_NVCC AND PLIMSOLL_CUDNN_INCLUDE AND PLIMSOLL_FRONTEND_INCLUDE)
    set(CMAKE_CUDA_COMPILER ${PLIMSOLL_NVCC})
    # Each architecture is compiled separately, so five take five times as long. Code for 80 also runs on 86 and 89, and on newer cards
    # after the driver has compiled it again. The preset dist has all architectures.
    if(NOT PLIMSOLL_CUDA_ARCHITECTURES STREQUAL AUTO)
      set(CMAKE_CUDA_ARCHITECTURES ${PLIMSOLL_CUDA_ARCHITECTURES})
    elseif(no_gpu)
      set(CMAKE_CUDA_ARCHITECTURES 80)
    else()
      set(CMAKE_CUDA_ARCHITECTURES native)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    enable_language(CUDA)
    # CMake 3.25 does not know that this nvcc supports C++20.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    find_package(CUDAToolkit 12.8 REQUIRED)
    set(PLIMSOLL_HAS_CUDA TRUE)
  elseif(PLIMSOLL_CUDA STREQUAL ON)
    message(FATAL_ERROR "PLIMSOLL_CUDA=ON needs nvcc (${PLIMSOLL_NVCC}), cudnn.h (${PLIMSOLL_CUDNN_INCLUDE}) and "
                        "cudnn_frontend.h (${PLIMSOLL_FRONTEND_INCLUDE}; scripts/cuda_deps.sh fetches it)")
  endif()
endif()
message(STATUS "GPU backend: ${PLIMSOLL_HAS_CUDA}")

# The names show which files need CUDA to build: *.cu, bind*.cpp, and everything in driver/. All other .cpp files (offers, geometry,
# sources of fused kernels) build everywhere.
function(plimsoll_cuda_folder)
  set(folder ${PROJECT_SOURCE_DIR}/src/backends/cuda)
  file(GLOB_RECURSE always CONFIGURE_DEPENDS ${folder}/*.cpp)
  list(FILTER always EXCLUDE REGEX "/driver/|/bind[^/]*$")
  add_library(plimsoll_backends_cuda STATIC ${always})
  target_include_directories(plimsoll_backends_cuda PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(plimsoll_backends_cuda PUBLIC plimsoll_backends_common)
  if(PLIMSOLL_HAS_CUDA)
    file(GLOB_RECURSE with_cuda CONFIGURE_DEPENDS ${folder}/bind*.cpp ${folder}/driver/*.cpp ${folder}/*.cu)
    target_sources(plimsoll_backends_cuda PRIVATE ${with_cuda})
    # GCC 12 wrongly warns about an overflow in cudnn-frontend's vectors after inlining.
    set_source_files_properties(src/backends/cuda/attention/bind.cpp src/backends/cuda/convolution/bind.cpp
      PROPERTIES COMPILE_OPTIONS -Wno-stringop-overflow)
    # An update that is folded into an embedding's gradient must equal, bit for bit, the update compiled by NVRTC, which does not contract
    # multiplications and additions (no FMA).
    set_source_files_properties(src/backends/cuda/embedding/row_updates.cu PROPERTIES COMPILE_OPTIONS --fmad=false)
    target_include_directories(plimsoll_backends_cuda SYSTEM PRIVATE ${PLIMSOLL_CUDNN_INCLUDE}
      ${PLIMSOLL_FRONTEND_INCLUDE} ${CUDAToolkit_INCLUDE_DIRS})
    target_link_libraries(plimsoll_backends_cuda PRIVATE CUDA::cudart_static ${CMAKE_DL_LIBS})
    target_compile_definitions(plimsoll_backends_cuda PUBLIC PLIMSOLL_HAS_CUDA=1)
  endif()
  plimsoll_unity(plimsoll_backends_cuda)
endfunction()
