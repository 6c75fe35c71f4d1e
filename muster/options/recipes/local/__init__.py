"""The embedded cloud's hubs."""
