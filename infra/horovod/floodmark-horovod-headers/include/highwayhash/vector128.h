// TensorFlow includes <highwayhash/vector128.h> but ships it under external/.
#include "external/highwayhash/highwayhash/vector128.h"
