// TensorFlow includes <highwayhash/vector256.h> but ships it under external/.
#include "external/highwayhash/highwayhash/vector256.h"
