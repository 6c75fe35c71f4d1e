"""Predicts how a run's time is shared out between training and exchanges. Nothing is measured for it."""
