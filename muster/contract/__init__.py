"""What the packages of Muster share: documents, names, keys of the bucket, statuses. Pure, without I/O."""
