"""Runs the tests: what a change must pass, and everything that is rare and long."""
