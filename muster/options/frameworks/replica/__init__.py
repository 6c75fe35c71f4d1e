"""The callbacks."""
