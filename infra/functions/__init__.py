"""The functions of the control plane: one construct, and one table of their differences."""
