"""A small GPT in PyTorch that learns to write Python from the standard library's sources."""
