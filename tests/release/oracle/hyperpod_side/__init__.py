"""What runs in the environment of AWS's SDK for HyperPod, which tests alone have."""
