// TensorFlow includes <highwayhash/instruction_sets.h> but ships it under external/.
#include "external/highwayhash/highwayhash/instruction_sets.h"
