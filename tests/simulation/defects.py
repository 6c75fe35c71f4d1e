"""Defects that the exploration must find. Each is put in while the product is imported, in a process of its own."""

import json
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

from tests.support.defects import read_defects
from tests.support.source_patch import ROOT

DEFECTS = {defect.name: defect for defect in read_defects(Path(__file__).with_suffix(".toml"))}
_broken: dict[str, str] = {}
"""The texts of the files that have a defect in this process."""


def source(file: str) -> str:
    """The text of a file of the product, with the defect that this process has."""
    return _broken.get(file) or (ROOT / file).read_text(encoding="utf-8")


def put_in(name: str) -> None:
    """Put a defect into this process, in which nothing of the product has been imported yet."""
    assert not [module for module in sys.modules if module.startswith("muster.")]
    defect, get_code = DEFECTS[name], SourceFileLoader.get_code
    _broken[defect.file] = defect.applied()

    def code(loader: SourceFileLoader, fullname: str) -> CodeType | None:
        if loader.path == str(ROOT / defect.file):
            return compile(_broken[defect.file], loader.path, "exec")
        return get_code(loader, fullname)

    SourceFileLoader.get_code = code  # type: ignore[method-assign]


def hunted(name: str, schedules: int) -> tuple[int, str] | None:
    """The first schedule that breaks an invariant because of the defect, and the invariant."""
    command = [sys.executable, "-m", "tests.simulation.hunt", name, str(schedules)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise RuntimeError(done.stderr)
    found = json.loads(done.stdout)
    return tuple(found) if found else None
