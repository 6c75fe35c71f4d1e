"""The settings of a deployment: `muster.toml`."""
