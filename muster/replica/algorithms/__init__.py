"""What replicas exchange and what they do with it. Pure."""
