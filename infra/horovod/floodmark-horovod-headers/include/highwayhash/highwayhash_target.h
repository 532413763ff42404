// TensorFlow includes <highwayhash/highwayhash_target.h> but ships it under external/.
#include "external/highwayhash/highwayhash/highwayhash_target.h"
