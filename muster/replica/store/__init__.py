"""The object stores in which replicas meet."""
