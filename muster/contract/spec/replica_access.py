"""What the replicas of a stack may reach, as its settings say. Decides what a spec needs beyond that. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from pydantic import Field

from muster.contract.document import StoredPart
from muster.contract.errors import Problem
from muster.contract.layout import s3_uri, split_s3_uri
from muster.contract.spec.secret_references import read_reference, references
from muster.contract.spec.spec import Spec
from muster.contract.training.values import RoleArn

_SHELL = ("CreateControlChannel", "CreateDataChannel", "OpenControlChannel", "OpenDataChannel")


class ReplicaAccess(StoredPart):
    """The rights of the stack's replica role outside of the stack's bucket, and the roles that a spec may name."""

    data: list[str] | None = Field(
        default=None, description="the prefixes that the role may read (s3://bucket/prefix/); none: not known"
    )
    roles: list[RoleArn] = Field(default_factory=list, description="the other roles that a spec may name")
    secrets: list[str] | None = Field(
        default=None,
        description="what the role may read of Secrets Manager and SSM, as a spec names it; none: not known",
    )

    def role_problems(self, spec: Spec, replica_role: str) -> Iterator[Problem]:
        """The spec's role, if Muster may not pass it to SageMaker: every launch would be refused."""
        allowed = [replica_role, *self.roles]
        # The client looks the ARN of a named role up; a plan refuses one that is still a name.
        if spec.role_arn is not None and spec.named_role is None and spec.role_arn not in allowed:
            line = f"further_role_arns = {json.dumps([*self.roles, spec.role_arn])}"
            yield Problem(
                "role_arn",
                repr(spec.role_arn),
                f"leave it out, or write {line} in the table [replicas] of muster.toml and deploy",
                "Muster may pass only the replica role and the roles of replicas.further_role_arns to SageMaker",
            )

    def secret_problems(self, spec: Spec) -> Iterator[Problem]:
        """The spec's references to secrets that the settings do not name. Roles of the user's own are not known."""
        known, pods = self.secrets, spec.hyperpod
        if known is None or spec.role_arn is not None or (pods is not None and pods.service_account is not None):
            return
        found = {field: read_reference(value) for field, value in references(spec).items()}
        asked = {field: one.source for field, one in found.items() if one is not None and one.source not in known}
        line = f"secrets = {json.dumps([*known, *dict.fromkeys(asked.values())])}"
        for field, source in asked.items():
            yield Problem(
                field,
                repr(source),
                f"write {line} in the table [replicas] of muster.toml and deploy",
                f"the secrets that the settings name: {', '.join(known) or 'none'}",
            )

    def remarks(self, spec: Spec, bucket: str) -> list[str]:
        """What the replicas of `spec` cannot reach, each with the setting to add. None where the rights are not known.

        `bucket` is the stack's own. A bucket policy of the same account may allow a read nevertheless, so these are no
        errors.
        """
        if self.data is None or spec.role_arn is not None:
            return []
        ranks = [spec.of_rank(rank) for rank in range(spec.replicas)]
        written = dict.fromkeys(uri for one in ranks for uri in _written(one) if split_s3_uri(uri)[0] != bucket)
        denied = self.denied(spec, bucket)
        return [
            *([self._line(denied)] if denied else []),
            *(remark for uri in _all_read(spec, bucket) if (remark := self._unreadable(uri, bucket)) is not None),
            *(
                f"the replica role may not write to {uri}: leave it out, so that the stack's bucket is used, or allow "
                "it by a policy in replicas.policy_arns"
                for uri in written
            ),
            *(
                f"{field} needs a right that the replica role does not have. Name a policy with this statement in "
                f"replicas.policy_arns of muster.toml and deploy: {json.dumps(statement)}"
                for field, statement in _needed(spec)
            ),
        ]

    def denied(self, spec: Spec, bucket: str) -> dict[str, str]:
        """What the replicas of `spec` may read nothing of, each with the folder to allow."""
        if self.data is None or spec.role_arn is not None:
            return {}
        folders = {uri: _folder(uri) for uri in _all_read(spec, bucket) if _of_run(uri, bucket) is None}
        return {uri: at for uri, at in folders.items() if not self._may_read(_whole(uri)) and not self._may_read(at)}

    def _may_read(self, uri: str) -> bool:
        return any(uri.startswith(prefix) for prefix in self.data or ())

    def _line(self, denied: Mapping[str, str]) -> str:
        """One remark on all that cannot be read, with one list to write."""
        line = f"data = {json.dumps([*(self.data or []), *dict.fromkeys(denied.values())])}"
        bare = [f"{uri}/" for uri in denied if f"{uri}/" in denied.values() and split_s3_uri(uri)[1]]
        slash = f", and end the channel's s3_uri with a slash ({', '.join(bare)})" if bare else ""
        remedy = f"write {line} in the table [replicas] of muster.toml and deploy{slash}"
        return f"the replica role may not read {', '.join(denied)}: {remedy}"

    def _unreadable(self, uri: str, bucket: str) -> str | None:
        """Why a prefix cannot be read that is another run's, or whose folder alone the role may read."""
        folder, run = _folder(uri), _of_run(uri, bucket)
        if self._may_read(_whole(uri)):
            return None
        if run is not None:
            return f"the replica role may not read what another run has left ({uri}): write model: {{run: {run}}}"
        if self._may_read(folder):
            slash = f"end the channel's s3_uri with a slash ({folder})"
            return f"the replica role may read below {folder} only, and not list {_whole(uri)}: {slash}"
        return None


def _of_run(uri: str, bucket: str) -> str | None:
    """The run that has left this in the stack's bucket; None for anything else."""
    output = s3_uri(bucket, "output/")
    return uri.removeprefix(output).partition("/")[0] if uri.startswith(output) else None


def _whole(uri: str) -> str:
    """The prefix; of a whole bucket with a slash, however it is written."""
    return uri if split_s3_uri(uri)[1] else f"{uri.rstrip('/')}/"


def _all_read(spec: Spec, bucket: str) -> dict[str, None]:
    """What the replicas read, each once."""
    ranks = (spec.of_rank(rank) for rank in range(spec.replicas))
    return dict.fromkeys(uri for one in ranks for uri in _read(one) if not _is_own_model(one, uri, bucket))


def _folder(uri: str) -> str:
    """The prefix to allow for a channel: a folder as it is, and for an object (its name has a dot) its folder."""
    bucket, key = split_s3_uri(uri)
    parents, slash, name = key.rpartition("/")
    return s3_uri(bucket, f"{parents}{slash}" if "." in name or not name else f"{key}/")


def _read(spec: Spec) -> Iterable[str]:
    sources = (channel.data_source.s3_data_source for channel in spec.input_data_config)
    return [source.s3_uri for source in sources if source is not None]


def _is_own_model(spec: Spec, uri: str, bucket: str) -> bool:
    """Whether the session of each replica may read this: it is the model of the run that the spec names."""
    model = spec.model
    if model is None or model.run is None or model.s3 is None or split_s3_uri(model.s3)[0] != bucket:
        return False
    return uri.rstrip("/") == model.s3.rstrip("/")


def _written(spec: Spec) -> Iterator[str]:
    """Where the platform writes for a job, with the job's role."""
    sections = (
        spec.output_data_config,
        spec.debug_hook_config,
        spec.profiler_config,
        spec.tensor_board_output_config,
        *spec.debug_rule_configurations,
        *spec.profiler_rule_configurations,
    )
    uris = [section.s3_output_path for section in sections if section is not None]
    yield from (uri for uri in [*uris, spec.checkpoint_config.s3_uri] if uri is not None)


def _needed(spec: Spec) -> Iterator[tuple[str, dict[str, object]]]:
    """The fields that need rights of their own, with the statement."""
    if spec.remote_debug_config is not None and spec.remote_debug_config.enable_remote_debug:
        # These actions have no resource level.
        yield "remote_debug_config", _statement([f"ssmmessages:{action}" for action in _SHELL], "*")
    if spec.mlflow_config is not None:
        yield "mlflow_config", _statement(["sagemaker-mlflow:*"], spec.mlflow_config.mlflow_resource_arn)
    if (server := spec.metrics.mlflow) is not None and server.is_managed:
        yield "metrics.mlflow", _statement(["sagemaker-mlflow:*"], server.tracking_uri)
    image = spec.training_image_config
    login = None if image is None else image.training_repository_auth_config
    if login is not None:
        arn = login.training_repository_credentials_provider_arn
        yield "training_repository_auth_config", _statement(["lambda:InvokeFunction"], arn)


def _statement(actions: list[str], resource: str) -> dict[str, object]:
    return {"Effect": "Allow", "Action": actions, "Resource": resource}
