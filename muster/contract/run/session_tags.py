"""The session tags that keep the runs of a stack apart.

The function attempt creates a job in a session of the launcher role that carries them. SageMaker gives them to the
session of the replica role under which the job runs (`SessionChainingConfig`), and the policy of that role names them.
"""

from __future__ import annotations

import re

from muster.contract.layout import split_s3_uri
from muster.contract.training.model_source import is_object

TAG_LINEAGE = "MusterLineage"
"""The first run of the lineage: its prefixes under rendezvous/ and checkpoints/ are those of all its continuations."""
TAG_RUN = "MusterRun"
"""The run itself: its prefixes under output/ and runs/, and the names of its jobs."""

TAG_MODEL = "MusterModel"
"""The folder of another run's model, from which the run starts (`model: {run: NAME}`), below one of `MODEL_FOLDERS`.
Only the sessions of such a run have the tag."""

SESSION_TAGS = (TAG_LINEAGE, TAG_RUN)
"""The tags of every session."""
MODEL_FOLDERS = ("output/", "checkpoints/")
"""Where the models of runs are. The policy names both, so no value of `TAG_MODEL` opens another part of the bucket."""

# STS: a tag's value has at most 256 characters, of these and a few others. None of them means anything in a policy.
_MODEL = re.compile(r"[A-Za-z0-9_.:=+@\-]+(?:/[A-Za-z0-9_.:=+@\- ]+)*")
_VALUE_MAX = 256


def model_tag(uri: str) -> str | None:
    """The value of `TAG_MODEL` for a model in the stack's bucket; None where its key cannot be one."""
    key = split_s3_uri(uri)[1]
    folder = key.rpartition("/")[0] if key.endswith("/") or is_object(uri) else key
    above = next((above for above in MODEL_FOLDERS if folder.startswith(above)), None)
    value = "" if above is None else folder.removeprefix(above)
    return value if len(value) <= _VALUE_MAX and _MODEL.fullmatch(value) else None


def principal_tag(tag: str) -> str:
    """The policy variable with the value of `tag` in the caller's session; without the tag nothing matches it."""
    return f"${{aws:PrincipalTag/{tag}}}"
