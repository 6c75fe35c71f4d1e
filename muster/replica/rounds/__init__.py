"""The rendezvous: claims, contributions, commits, reduction, snapshots."""
