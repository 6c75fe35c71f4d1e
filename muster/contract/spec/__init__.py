"""What a user writes: the spec, its reader, and what a stack gives to specs that leave it out."""
