"""Large objects between S3 and memory that is there already: over kept connections, without copies."""
