"""Replicas as jobs of a HyperPod cluster, instead of training jobs."""
