// TensorFlow includes <highwayhash/highwayhash.h> but ships it under external/.
#include "external/highwayhash/highwayhash/highwayhash.h"
