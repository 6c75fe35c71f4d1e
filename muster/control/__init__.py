"""The control plane: decisions and their I/O. Each of its functions is idempotent and safe to call at any time."""
