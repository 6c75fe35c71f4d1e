"""`python -m muster.options.hyperpod.replica`: the first process of a pod."""

import os
import sys

from muster.options.hyperpod.replica.first_process import main

if __name__ == "__main__":
    sys.exit(main(os.environ))
