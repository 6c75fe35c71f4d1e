"""Places: one model trained over regions and accounts."""
