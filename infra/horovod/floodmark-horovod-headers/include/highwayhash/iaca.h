// TensorFlow includes <highwayhash/iaca.h> but ships it under external/.
#include "external/highwayhash/highwayhash/iaca.h"
