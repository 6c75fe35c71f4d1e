"""Places nearer than the bucket where a replica keeps its state."""
