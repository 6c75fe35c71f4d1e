"""Checks of a deployed stack in its account, with a run of two small replicas."""
