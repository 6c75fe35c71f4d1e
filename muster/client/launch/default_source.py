"""The source that a spec's file means when it names none: the folder in which its trainer's module is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from muster.client.checks.checked_program import Program
from muster.client.checks.python_modules import locate
from muster.client.checks.trainer_check import is_misspelled

_OWN_PACKAGE = "muster"  # in every replica already


def default_source(document: Mapping[Any, object], folders: Iterable[Path]) -> Path | None:
    """The first of `folders` that holds the trainer's module; None if `source_dir` is in `document`, even as null.

    A module that is only misspelled counts, so that the mistake is found. The home folder and the root of a file system
    are never meant: they hold more than code.
    """
    program = Program.of(document)
    if "source_dir" in document or program.module is None or program.module.partition(".")[0] == _OWN_PACKAGE:
        return None
    candidates = [folder for folder in folders if not holds_more_than_code(folder)]
    for folder in candidates:
        if isinstance(locate(folder, program.module), Path):
            return folder
    for folder in candidates:
        if is_misspelled(folder, program.module, program.function) is not None:
            return folder
    return None


def unshipped(document: Mapping[Any, object]) -> str | None:
    """A remark on a spec that has no `source_dir`, where `default_source` has found none: the image must have all."""
    program = Program.of(document)
    if "source_dir" in document or "algorithm_name" in document:
        return None
    script = next((word for word in program.words if word.endswith((".py", ".sh")) and not word.startswith("/")), None)
    named = f"the module {program.module}" if program.module is not None else script
    if named is None or (program.module or "").partition(".")[0] == _OWN_PACKAGE:
        return None
    where = "is not beside the spec" if program.module is not None else "is looked for in the image"
    remedy = "to ship a folder, set source_dir; source_dir: null says that the image has the code"
    return f"no source is shipped: {named} {where}; {remedy}"


def holds_more_than_code(folder: Path) -> bool:
    """Whether this is the home folder or the root of a file system: credentials may be in it."""
    whole = folder.resolve()
    try:
        is_home = whole == Path.home().resolve()
    except RuntimeError:  # the user has none, as in some containers
        is_home = False
    return is_home or whole.parent == whole
