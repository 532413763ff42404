// TensorFlow includes <highwayhash/scalar.h> but ships it under external/.
#include "external/highwayhash/highwayhash/scalar.h"
