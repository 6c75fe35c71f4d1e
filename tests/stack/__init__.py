"""Driving the deployed stack from tests."""
