// TensorFlow includes <highwayhash/hh_sse41.h> but ships it under external/.
#include "external/highwayhash/highwayhash/hh_sse41.h"
