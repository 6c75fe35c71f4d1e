"""The algorithm of a run and its outer optimizer. Pure."""
