// TensorFlow includes <highwayhash/endianess.h> but ships it under external/.
#include "external/highwayhash/highwayhash/endianess.h"
