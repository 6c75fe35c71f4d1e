"""torchft's manager."""
