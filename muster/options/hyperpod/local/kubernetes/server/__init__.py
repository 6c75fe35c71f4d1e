"""The HTTP API of the embedded cluster: paths, bodies, verbs, watches, logs."""
