"""The container's entry points, from environment to the trainer's call."""
