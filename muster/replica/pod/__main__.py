"""`python -m muster.replica.pod`: the first process of a pod."""

import os
import sys

from muster.replica.pod.first_process import main

if __name__ == "__main__":
    sys.exit(main(os.environ))
