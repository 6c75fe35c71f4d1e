"""What a replica does between two rounds: its inner steps, and what of them goes into which round."""
