"""What trainers use: DiLoCo for arrays and for PyTorch, and a manager for torchft."""
