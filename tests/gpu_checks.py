"""What one rank observes on its GPU, as one line of JSON; test_gpu starts it with Horovod's variables set."""

import json
import os

os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["HOROVOD_LOCAL_RANK"]

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

hvd.init()
rank = hvd.rank()


@tf.function(jit_compile=False)  # type: ignore[untyped-decorator] # TensorFlow has no types
def summed(tensor: tf.Tensor) -> tf.Tensor:
    """Add a tensor up over the ranks."""
    return hvd.allreduce(tensor, op=hvd.Sum)


keras.mixed_precision.set_global_policy("mixed_float16")
layer = keras.layers.Dense(4, kernel_initializer="ones")
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(tf.cast(layer(np.ones((2, 3), dtype=np.float32)), tf.float32))
(gradient, _) = tape.gradient(loss, [weight.value for weight in layer.weights])
total = summed(tf.fill([1000], float(rank + 1)))
print(  # noqa: T201 - what the test reads
    json.dumps(
        {
            "nccl": hvd.nccl_built(),
            "gpus": len(tf.config.list_physical_devices("GPU")),
            "device": total.device,
            "sum": float(tf.reduce_mean(total)),
            "half": float(tf.reduce_mean(summed(tf.ones([8], tf.float16)))),
            "computed_in": layer.compute_dtype,
            "gradient": float(tf.reduce_mean(summed(gradient))),
        }
    )
)
