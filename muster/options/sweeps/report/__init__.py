"""The values side by side."""
