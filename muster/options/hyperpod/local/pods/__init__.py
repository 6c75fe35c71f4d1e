"""Pods as child processes: their environment, volumes, addresses, logs, ends."""
