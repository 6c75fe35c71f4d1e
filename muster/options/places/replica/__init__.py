"""Rounds over two levels: within a place, and between places."""
