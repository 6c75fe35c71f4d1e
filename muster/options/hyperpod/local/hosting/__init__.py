"""The embedded cluster inside the service: its API, its EKS cluster, SageMaker's calls about it, its events."""
