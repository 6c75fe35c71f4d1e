"""The shards that a replica trains next, and how its trainer reads them."""
