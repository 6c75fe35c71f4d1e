"""The control plane: decisions and their I/O. Each function of it is idempotent and safe to call at any moment."""
