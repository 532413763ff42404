// TensorFlow includes <highwayhash/sip_hash.h> but ships it under external/.
#include "external/highwayhash/highwayhash/sip_hash.h"
