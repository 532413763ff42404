// TensorFlow includes <highwayhash/compiler_specific.h> but ships it under external/.
#include "external/highwayhash/highwayhash/compiler_specific.h"
