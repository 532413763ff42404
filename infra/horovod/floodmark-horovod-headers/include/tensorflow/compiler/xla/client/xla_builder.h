// Horovod 0.28.1 includes this path; XLA moved the header.
#include "xla/hlo/builder/xla_builder.h"
