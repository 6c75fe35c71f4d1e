"""`python -m muster.replica`: what a replica's container runs."""

import os
import sys

from muster.replica.entry.launch import main

if __name__ == "__main__":
    sys.exit(main(os.environ))
