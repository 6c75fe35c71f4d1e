"""The state machine and its definition."""
