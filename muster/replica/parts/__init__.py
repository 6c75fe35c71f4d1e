"""What each process of a replica holds: its slice of the flat element space, and how values move between processes."""
