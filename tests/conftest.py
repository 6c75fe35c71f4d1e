"""Fixtures that every test may use."""

pytest_plugins = ["tests.plugins.cloud", "tests.plugins.stack"]
