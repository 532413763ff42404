// TensorFlow includes <highwayhash/load3.h> but ships it under external/.
#include "external/highwayhash/highwayhash/load3.h"
