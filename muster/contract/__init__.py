"""What the parts of Muster promise each other: documents, names, places, statuses. Pure, no I/O."""
