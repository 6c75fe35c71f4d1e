"""What the public client of Kubernetes does with an embedded cluster. Runs in the environment of that client."""
