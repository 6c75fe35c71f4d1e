"""The state directory of an embedded cloud: how to reach it, its credentials, its log.

.muster/
  local.json       how to reach the service (mode 0600: it holds the root credentials)
  credentials.json the root credentials, created once: a shell that `env` has set up works with the next `up`, too
  local.log        the service's log
  hubs/            the models of SageMaker Hub, which its user puts there: HUB/Model/NAME.json
  certificates/    the certificate authority, created once, and the service's certificate
  run/             temporary files of the running service: job trees, functions
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from muster.contract.document import Document
from muster.contract.spec.places import HOME
from muster.contract.training.clusters import Clusters
from muster.local.cloud_errors import NotRunningError, UnknownPlaceError

DEFAULT_STATE = Path(".muster")
# The one line that the service writes to its standard output when it starts.
READY = "ready"
"""It listens. Anything else is JSON: `{"error": REASON}`."""
OBSERVER_HEADER = "x-muster-observer"
"""With the admin token it marks a call of a test, which does not count towards the account's rates."""
PORT_IN_USE = "port-in-use"
"""The reason when another process uses the port."""


class PlaceState(Document):
    """How to reach a place of a running embedded cloud: a region of an account."""

    endpoint: str
    port: int
    region: str
    account_id: str
    access_key_id: str
    secret_access_key: str


class CloudState(PlaceState):
    """How to reach a running embedded cloud, at its own place."""

    pid: int
    admin_token: str
    ca_file: Path
    """The certificate authority of this cloud alone."""
    bundle_file: Path
    """That authority and the public ones, for variables that replace the trust store."""
    clusters: Clusters = Clusters()
    """The HyperPod clusters, as a stack has to know them."""
    places: Mapping[str, PlaceState] = {}
    """The other places, by name."""

    def at(self, place: str) -> CloudState:
        """How to reach the same cloud at a place, as that place's administrator.

        Raises:
            UnknownPlaceError: it has no such place.
        """
        if place == HOME:
            return self
        if place not in self.places:
            raise UnknownPlaceError(place, [HOME, *self.places])
        return self.model_copy(update=self.places[place].model_dump())


@dataclass(frozen=True)
class StateDirectory:
    """Where one embedded cloud keeps everything. `root` is absolute."""

    root: Path

    @classmethod
    def at(cls, path: Path) -> StateDirectory:
        """The state directory at `path`, which need not exist yet."""
        return cls(path.absolute())

    @property
    def file(self) -> Path:
        """How to reach the service."""
        return self.root / "local.json"

    @property
    def log(self) -> Path:
        """The service's log."""
        return self.root / "local.log"

    @property
    def certificates(self) -> Path:
        """Certificates and keys."""
        return self.root / "certificates"

    @property
    def scratch(self) -> Path:
        """Files that only the running service needs; emptied when it starts, removed when it stops."""
        return self.root / "run"

    def prepare(self) -> None:
        """Make the directory, private to its owner, with an empty scratch directory."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.clear()
        for directory in (self.scratch / "tmp", self.scratch / "home", self.scratch / "jobs"):
            directory.mkdir(parents=True, mode=0o700)

    def clear(self) -> None:
        """Remove the files that say that a service runs here."""
        self.file.unlink(missing_ok=True)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def write(self, state: CloudState) -> None:
        """Publish `state` atomically: a reader sees all of it or nothing."""
        _write_private(self.file, state.model_dump_json(indent=2))

    def root_credentials(self) -> tuple[str, str]:
        """Access key and secret of the root user: random, and the same as long as the directory exists."""
        file = self.root / "credentials.json"
        if not file.exists():
            key = "AKIA" + secrets.token_hex(8).upper()
            _write_private(file, json.dumps({"access_key_id": key, "secret_access_key": secrets.token_urlsafe(30)}))
        document = json.loads(file.read_bytes())
        return document["access_key_id"], document["secret_access_key"]

    def read(self) -> CloudState:
        """The state of the service that was started here.

        Raises:
            NotRunningError: there is none, or the file is damaged.
        """
        try:
            return CloudState.model_validate_json(self.file.read_bytes())
        except (FileNotFoundError, ValidationError) as error:
            raise NotRunningError(self.root) from error


def _write_private(file: Path, text: str) -> None:
    partial = file.with_suffix(f".{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text + "\n")
    partial.replace(file)
