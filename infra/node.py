"""What the CDK needs on the machine besides Python."""

from __future__ import annotations

import shutil

from muster.contract.errors import ConfigurationError


class NodeMissingError(ConfigurationError):
    """There is no node on the PATH."""

    def __init__(self) -> None:
        super().__init__("Node.js is not on the PATH and the CDK needs it: install node 20 or newer from nodejs.org.")


def require_node(path: str | None = None) -> None:
    """Refuse to go on without node on `path` (None: this process's PATH); jsii would leave a traceback.

    Raises:
        NodeMissingError: it is not there.
    """
    if shutil.which("node", path=path) is None:
        raise NodeMissingError
