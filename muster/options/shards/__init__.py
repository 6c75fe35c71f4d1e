"""Shards of the data: each is trained once an epoch, whatever joins, leaves, fails or is rerun."""
