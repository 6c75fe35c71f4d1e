"""What trainers call: arrays, PyTorch, torchft."""
