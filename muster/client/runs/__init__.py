"""A run as a client sees it: status, events, progress, continuations, its live page."""
