"""`__main__` of the replica package's zip file. An older Python must reach the error below: no newer syntax here.

`--install PLACE` makes a Python that has what the replica requires. `--run MODULE` runs a module of the package.
"""

import os
import runpy
import sys
from pathlib import Path

# The oldest Python that Muster supports.
OLDEST = (3, 11)


def _refuse() -> None:
    oldest, found = (".".join(map(str, version)) for version in (OLDEST, sys.version_info[:3]))
    reason = f"source_dir needs an image with Python {oldest} or newer; this one has {found}."
    failure = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")) / "output" / "failure"
    failure.parent.mkdir(parents=True, exist_ok=True)
    failure.write_text(f"[bad-input] {reason}")
    sys.stderr.write(f"muster: {reason}\n")
    sys.exit(64)  # BAD_INPUT in muster.contract.exits


if __name__ == "__main__":
    if sys.version_info < OLDEST:
        _refuse()
    if sys.argv[1:2] == ["--run"]:
        runpy.run_module(sys.argv[2], run_name="__main__", alter_sys=True)
    elif sys.argv[1:2] == ["--install"]:
        from muster.replica.entry.bootstrap import install

        install(Path(sys.argv[0]), Path(sys.argv[2]))
    else:
        from muster.replica.entry.bootstrap import main

        main(sys.argv[0], sys.argv[1:], os.environ)
