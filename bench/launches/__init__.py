"""Models of a launch and of a replica's workflow, around the real definition and decisions: see `bench/launcher.py`."""
