"""Places: one run over several regions and accounts."""
