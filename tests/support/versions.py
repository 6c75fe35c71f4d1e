"""Another version of Muster, made from a copy of this tree, and its deployment.

The copy is changed by replacing texts, each of which must occur once: an edit that no longer applies is an error.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.source_patch import ROOT, replaced_once

# Run in the folder of the version, so that its packages are imported, and not those of this tree. In older
# commits the stack is a package of its own.
_DEPLOY = """
import json, os, sys
from pathlib import Path
from importlib import import_module
infra = "muster.infra" if Path("muster/infra").exists() else "infra"
target = import_module(infra + ".settings.stack_settings").Platform.LOCAL
settings = import_module(infra + ".settings.settings_file").parse_settings(json.loads(sys.argv[1]), target)
outputs = Path(sys.argv[2])
import_module(infra + ".deploy.deployment").deploy(os.environ, target=target, settings=settings, outputs=outputs)
"""
_PARTS = ("muster", "lambdas", "infra", "statemachine", "app.py", "cdk.json")


class Edit(NamedTuple):
    """Replace `before`, which occurs once in the file `path`, by `after`."""

    path: str
    before: str
    after: str


class MusterVersion:
    """A version of Muster in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_this_tree(cls, folder: Path, edits: Sequence[Edit] = ()) -> MusterVersion:
        """A copy of this tree in `folder`, changed by `edits`."""
        folder.mkdir(parents=True)
        for name in _PARTS:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, folder / name)
        for edit in edits:
            path = folder / edit.path
            text = path.read_text(encoding="utf-8")
            path.write_text(replaced_once(text, edit.before, edit.after, edit.path), encoding="utf-8")
        return cls(folder).with_tools()

    @classmethod
    def of_revision(cls, folder: Path, revision: str) -> MusterVersion:
        """A commit of this repository."""
        folder.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", revision, *_PARTS], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True)
        return cls(folder).with_tools()

    def with_tools(self) -> MusterVersion:
        """This version, with the tools and the installed dependencies of this tree."""
        (self.folder / "node_modules").symlink_to(ROOT / "node_modules")
        bundles = self.folder / "build" / "bundle"
        bundles.mkdir(parents=True)
        built = ROOT / "build" / "bundle"
        for installed in built.iterdir() if built.is_dir() else ():
            if installed.is_dir():
                (bundles / installed.name).symlink_to(installed)
        return self

    def deploy(self, environment: Mapping[str, str], settings: Mapping[str, Any]) -> dict[str, str]:
        """Deploy this version with its own code and the CDK CLI; the outputs of the stack."""
        outputs = self.folder / "deployed" / "outputs.json"
        command = [sys.executable, "-c", _DEPLOY, json.dumps(settings), str(outputs)]
        # Its CDK app is a process of its own, which must find the version's packages, too.
        own = {**environment, "PYTHONPATH": str(self.folder)}
        outcome = subprocess.run(command, cwd=self.folder, env=own, capture_output=True, text=True, check=False)
        assert outcome.returncode == 0, f"{outcome.stdout[-3_000:]}\n{outcome.stderr[-3_000:]}"
        [written] = json.loads(outputs.read_text(encoding="utf-8")).values()
        return dict(written)
