"""The bytes and keys of the objects that replicas exchange."""
