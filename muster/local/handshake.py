"""What the service's process says on its standard output to whoever starts it: one line."""

READY = "ready"
"""It listens. Anything else is JSON: `{"error": REASON}`."""
PORT_IN_USE = "port-in-use"
"""The reason when somebody else has the port."""
