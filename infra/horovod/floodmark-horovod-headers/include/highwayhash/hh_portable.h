// TensorFlow includes <highwayhash/hh_portable.h> but ships it under external/.
#include "external/highwayhash/highwayhash/hh_portable.h"
