"""What `muster init` writes: a spec, and code that runs with it."""
