// TensorFlow includes <highwayhash/hh_avx2.h> but ships it under external/.
#include "external/highwayhash/highwayhash/hh_avx2.h"
