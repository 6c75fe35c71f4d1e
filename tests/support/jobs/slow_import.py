"""A trainer whose import lasts until the test lets it end."""

import os
from pathlib import Path

from tests.support.jobs.trainers import train
from tests.support.waiting import wait_until

wait_until("the gate", Path(os.environ["MUSTER_TEST_GATE"]).exists)

__all__ = ["train"]
