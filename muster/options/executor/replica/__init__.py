"""Trainers that bring their own loop, and the all-reduce that they call."""
