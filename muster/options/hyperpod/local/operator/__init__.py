"""The HyperPod training operator: jobs become pods, agents are started, faults are remediated."""
