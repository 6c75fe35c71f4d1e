"""A drop-in replacement for a program's SageMakerExecutor, and for what its trainers call."""
