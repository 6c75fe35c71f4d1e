"""The embedded cloud that a shell uses: the one that `muster local env` has pointed it at, wherever the shell is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from muster.local.cloud_errors import NotRunningError, OtherEndpointError
from muster.local.cloud_state import DEFAULT_STATE, StateDirectory
from muster.local.local_cloud import LocalCloud
from muster.local.process_environment import LOOPBACK


def cloud_of_shell(state: Path | None) -> LocalCloud:
    """The cloud whose state lies in `state`; None: the one that the shell uses, or the one of this folder.

    Raises:
        OtherEndpointError: the shell uses an embedded cloud whose state is not known.
        NotRunningError: none was started there.
        DeadCloudError: it does not answer.
    """
    return LocalCloud.attach(state or shell_state(os.environ))


def shell_state(environment: Mapping[str, str], folder: Path = DEFAULT_STATE) -> Path:
    """The state directory of the cloud that a process with these variables calls; `folder` where it calls none.

    `muster local env` names a file in it as the trust store.

    Raises:
        OtherEndpointError: it calls an embedded cloud whose state is neither there nor in `folder`.
    """
    endpoint = environment.get("AWS_ENDPOINT_URL", "").rstrip("/")
    if urlsplit(endpoint).hostname not in LOOPBACK:
        return folder
    bundle = environment.get("AWS_CA_BUNDLE")
    named = [] if not bundle else [Path(bundle).parent.parent]
    for place in (*named, folder):
        if endpoint in _endpoints_of(place):
            return place
    raise OtherEndpointError(endpoint, StateDirectory.at(folder).root)


def _endpoints_of(place: Path) -> set[str]:
    try:
        state = StateDirectory.at(place).read()
    except (NotRunningError, OSError):
        return set()
    return {state.endpoint, *(other.endpoint for other in state.places.values())}
