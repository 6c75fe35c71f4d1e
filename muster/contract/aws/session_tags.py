"""The session tags that keep the runs of a stack apart.

The function attempt creates a job in a session of the launcher role that carries them. SageMaker gives them to the
session of the replica role under which the job runs (`SessionChainingConfig`), and the policy of that role names them.
"""

from __future__ import annotations

TAG_LINEAGE = "MusterLineage"
"""The first run of the lineage: its prefixes under rendezvous/ and checkpoints/ are those of all its continuations."""
TAG_RUN = "MusterRun"
"""The run itself: its prefixes under output/ and runs/, and the names of its jobs."""

SESSION_TAGS = (TAG_LINEAGE, TAG_RUN)


def principal_tag(tag: str) -> str:
    """The policy variable with the value of `tag` in the caller's session; without the tag nothing matches it."""
    return f"${{aws:PrincipalTag/{tag}}}"
