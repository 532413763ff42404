// TensorFlow includes <farmhash.h> but ships it under external/.
#include "external/farmhash_archive/src/farmhash.h"
