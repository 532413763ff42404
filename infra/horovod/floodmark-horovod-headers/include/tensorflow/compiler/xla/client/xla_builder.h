// Horovod 0.28.1 includes this path; XLA moved the header.
#include "xla/hlo/builder/xla_builder.h"

#if HAVE_CUDA
// What TensorFlow 2.21 has dropped and a GPU build needs. Only Horovod's xla_mpi_ops.cc includes this file, so
// the function that its mpi_ops.cc declares is defined once.
#include <cuda_runtime.h>

#include "xla/stream_executor/stream.h"

namespace xla {
template <typename T>
using StatusOr = absl::StatusOr<T>;
}  // namespace xla

namespace stream_executor::gpu {
cudaStream_t AsGpuStreamValue(Stream* stream) {
  return static_cast<cudaStream_t>(stream->platform_specific_handle().stream);
}
}  // namespace stream_executor::gpu
#endif  // HAVE_CUDA
