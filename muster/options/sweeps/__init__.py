"""Values that differ from rank to rank."""
