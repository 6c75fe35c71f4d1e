"""What runs inside the container: the entry point, the rendezvous in the bucket, DiLoCo."""
