"""The handlers of the functions that only a stack with HyperPod clusters has: a parse and a call each."""
