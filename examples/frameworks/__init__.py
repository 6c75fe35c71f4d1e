"""One trainer for each framework: small enough to read at once, and to run on a CPU."""
