"""Clusters as a client sees them."""
