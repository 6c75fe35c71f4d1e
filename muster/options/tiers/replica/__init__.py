"""Inner states of a replica between two rounds, in tiers: memory of the cluster's nodes, the instance's disk, S3."""
