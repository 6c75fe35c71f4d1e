"""Quality per byte: the loss of the GPT example against data parallelism, by what its replicas send."""
