"""A trainer with torchft to start with."""
