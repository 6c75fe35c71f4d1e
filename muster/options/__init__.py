"""What Muster can do beside its core: each option is a folder, with its part of every runtime."""
