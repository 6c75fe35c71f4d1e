"""Ends with the exit code of its first argument; a second one goes into the failure file."""

import os
import sys
from pathlib import Path

root = Path(os.environ["SAGEMAKER_BASE_DIR"])
if len(sys.argv) > 2:
    (root / "output" / "failure").write_text(sys.argv[2] * int(sys.argv[3]))
(root / "output" / "data" / "partial").write_text("what there is")
sys.exit(int(sys.argv[1]))
