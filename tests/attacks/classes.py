"""The classes of attacks. Those of `SHORT` take seconds and run before a merge; others need a template or a cloud."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.attacks import forged, local_http, rights, specs
from tests.attacks.attempts import Tries
from tests.support.template import ROOT, Template

SHORT: Mapping[str, Callable[[], Tries]] = {
    "forged logs": forged.logs,
    "manifests of models": forged.manifests,
    "commits of rounds": forged.commits,
    "the specs of a client": specs.of_clients,
    "the specs of the inbox": specs.of_the_inbox,
    "HTTP at the door of the local cloud": local_http.at_the_door,
    "forged notices": forged.notices,
    "forged notices at the same time": forged.crowds,
}


@contextmanager
def templates() -> Iterator[Callable[[str], Template]]:
    """The templates of `tests.infra.variants`."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "tests.infra.variants", folder], cwd=ROOT, check=True)
        yield partial(Template.in_folder, Path(folder))


def of_jobs() -> Tries:
    """With a training job's credentials, in a stack with clusters and in one without."""
    with templates() as read:
        for name in ("plain", "clusters"):
            yield from rights.of_jobs(read(name))


def of_pods() -> Tries:
    """With a pod's credentials."""
    with templates() as read:
        yield from rights.of_pods(read("clusters"))


LONG: Mapping[str, Callable[[], Tries]] = {
    "the credentials of a training job": of_jobs,
    "the credentials of a pod": of_pods,
    "HTTP at a local cloud": local_http.on_a_cloud,
}
