"""Child processes of the service, none of which outlives it."""
