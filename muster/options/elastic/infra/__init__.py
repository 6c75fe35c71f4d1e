"""What every stack has for elastic runs: the function scale, and what other functions may do with seats."""
