"""Rules that watch the training of a run."""
