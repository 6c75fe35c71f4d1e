"""EKS of MiniStack, closer to AWS: tokens, access entries, pod identities, and what a template says of them."""
