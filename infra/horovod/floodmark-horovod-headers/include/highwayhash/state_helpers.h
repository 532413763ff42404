// TensorFlow includes <highwayhash/state_helpers.h> but ships it under external/.
#include "external/highwayhash/highwayhash/state_helpers.h"
