"""What a process says of its training: metrics, progress, and what its time is spent on."""
