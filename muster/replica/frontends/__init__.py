"""What trainers use: DiLoCo for arrays and for PyTorch."""
