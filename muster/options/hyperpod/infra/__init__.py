"""What a stack with HyperPod clusters has besides: the pods' role, the functions' way into clusters, notices."""
