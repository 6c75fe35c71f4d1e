"""TorchX's workspaces as folders of source code.

A workspace is a local folder, most often the working directory; TorchX also knows URIs of other file systems, and since
its nightlies several folders that are merged. What `.torchxignore` lists is left out, as TorchX's own schedulers do.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit

from torchx.specs import Role
from torchx.workspace.api import TORCHX_IGNORE
from torchx.workspace.dir_workspace import DirWorkspaceMixin

from muster.client.launch.default_source import holds_more_than_code
from muster.client.launch.source_archive import source_files
from muster.options.torchx.client.application_spec import OptionsError


class Workspaces:
    """The folders of workspaces. Those that had to be copied live as long as this object."""

    def __init__(self) -> None:
        self._copies: list[TemporaryDirectory[str]] = []

    def folder(self, workspace: str) -> str | None:
        """The folder to pack for a workspace; None if there is nothing in it.

        Raises:
            OptionsError: it is the home folder, or the root of a file system.
        """
        parts = urlsplit(workspace)
        is_local = parts.scheme in {"", "file"}
        place = Path(unquote(parts.path) if parts.scheme else workspace)
        if is_local and holds_more_than_code(place):
            message = (
                f"workspace: found {place}, which holds more than code; run torchx in the project's folder, or name "
                'one with --workspace. --workspace "" ships nothing.'
            )
            raise OptionsError(message)
        if is_local and not (place / TORCHX_IGNORE).is_file():
            return None if place.is_dir() and not any(source_files(place)) else str(place)
        copy = self._new_folder() / "workspace"
        # TorchX's own copy, because the rules of its file differ from those of .musterignore.
        role = Role(name="workspace", image="")
        DirWorkspaceMixin().build_workspace_and_update_role(role, workspace, {"job_dir": str(copy)})
        files = list(source_files(copy))
        for name in files:
            if is_local:  # TorchX copies the bytes alone
                shutil.copymode(place / name, copy / name)
        return str(copy) if files else None

    def merged(self, workspace: Any) -> str | None:
        """The folder to pack for the `Workspace` of a role, which may map several folders into one."""
        if not workspace:
            return None
        if workspace.is_unmapped_single_project():
            return self.folder(str(workspace))
        merged = self._new_folder()
        workspace.merge_into(merged)
        return self.folder(str(merged))

    def _new_folder(self) -> Path:
        self._copies.append(TemporaryDirectory(prefix="muster-workspace-"))
        return Path(self._copies[-1].name)
