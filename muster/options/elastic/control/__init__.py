"""The seats of elastic runs in the control plane: which replicas are wanted, and what their workflows wait for."""
