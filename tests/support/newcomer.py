"""The shell of a new user: uv and node are there, an index has the wheel, and nothing of the clone is in reach."""

import sys
from pathlib import Path

from uv import find_uv_bin

from muster.infra.packages import uv_pip
from muster.infra.release.artifacts import build_wheel, user_environment
from tests.support.shown_pages import install_stand_ins
from tests.support.source_patch import ROOT, copied_tree

INSTALL = "uv tool install 'muster-train[deploy]'"
FIRST_MODEL = (
    INSTALL,
    "muster local up",
    'eval "$(muster local env)"',
    "muster deploy --target local",
    "muster init own --from train:train --replicas 2",
    "muster launch own/run.yaml --name own --watch",
)
"""The tutorial's commands from an empty machine to a model of one's own; the others look at things."""


def newcomer_shell(folder: Path) -> dict[str, str]:
    """The environment of that shell; its programs and caches are below `folder`. The wheel is built from this tree."""
    with copied_tree() as tree:
        wheel = build_wheel(tree, folder / "index")
    _, settings = uv_pip(["install"])
    environment = {
        **{name: value for name, value in settings.items() if name.startswith(("UV_", "SSL_", "ALL_PROXY"))},
        **user_environment(folder / "cache"),
        "UV_FIND_LINKS": f"{wheel.parent} {settings.get('UV_FIND_LINKS', '')}".strip(),
        "UV_CONSTRAINT": str(ROOT / "requirements.txt"),
        "UV_PYTHON": sys.executable,
        "UV_TOOL_DIR": str(folder / "tools"),
        "UV_TOOL_BIN_DIR": str(folder / "programs"),
    }
    for name in ("NO_COLOR", "MUSTER_STACK"):
        environment.pop(name, None)
    environment = install_stand_ins(folder / "programs", environment)
    (folder / "programs" / "uv").symlink_to(find_uv_bin())
    return environment
