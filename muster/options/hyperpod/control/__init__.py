"""Clusters: the way to their Kubernetes APIs, and the jobs of replicas on them. Imported where a stack has clusters."""
