// TensorFlow includes <highwayhash/hh_types.h> but ships it under external/.
#include "external/highwayhash/highwayhash/hh_types.h"
