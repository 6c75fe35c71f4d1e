"""HyperPod: what a replica's job on a cluster is, in a spec, in Kubernetes and in the bucket. Pure."""
