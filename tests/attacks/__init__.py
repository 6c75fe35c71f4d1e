"""Attacks on a stack, its clusters and the embedded cloud, by class: of what is tried, nothing may succeed."""
