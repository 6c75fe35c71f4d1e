"""Places: the replicas of a run in several regions and accounts."""
