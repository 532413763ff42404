// TensorFlow includes <highwayhash/arch_specific.h> but ships it under external/.
#include "external/highwayhash/highwayhash/arch_specific.h"
