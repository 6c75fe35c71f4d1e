"""`python -m muster.replica.legacy`: see `entrypoint`."""

import sys

from muster.replica.legacy.entrypoint import main

if __name__ == "__main__":
    sys.exit(main())
