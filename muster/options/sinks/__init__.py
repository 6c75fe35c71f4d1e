"""Where replicas write metrics beside Muster's own page."""
