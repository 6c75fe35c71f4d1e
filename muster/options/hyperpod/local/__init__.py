"""The embedded HyperPod cluster behind the Kubernetes API: nodes, Kueue, the training operator, pods as processes."""
