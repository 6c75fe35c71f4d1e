"""`python -m muster.replica` with a launcher that waits a second for what ends, where it would wait minutes."""

import os
import sys

from muster.replica.entry import launch
from muster.replica.group.launched_group import Patience

if __name__ == "__main__":
    sys.exit(launch.main(os.environ, Patience(stop=2.0, end=1.0, returned=60.0, meet=60.0, reach=1.0)))
