"""The Kubernetes API of the embedded cloud: objects in memory, rights, and the server in front of them."""
