// TensorFlow includes <highwayhash/hh_buffer.h> but ships it under external/.
#include "external/highwayhash/highwayhash/hh_buffer.h"
