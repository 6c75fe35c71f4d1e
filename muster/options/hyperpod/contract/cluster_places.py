"""On which of a stack's clusters the replicas of a spec run, and in which namespace."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Sequence
from typing import TypeVar

from muster.contract.backend import Backend
from muster.contract.errors import Problem, StatedProblem
from muster.contract.spec.rank_spec import parts_of
from muster.contract.spec.spec_fields import SpecFields
from muster.contract.training.cluster_fields import HyperPod
from muster.contract.training.clusters import Cluster
from muster.options.hyperpod.contract.object_identity import ACCOUNT_HEAD

S = TypeVar("S", bound=SpecFields)


def place_problems(spec: SpecFields, clusters: Sequence[Cluster]) -> list[Problem]:
    """What a spec says of clusters that the stack does not have; each place of the spec once."""
    return list(dict.fromkeys(_problems(spec, clusters)))


def _problems(spec: SpecFields, clusters: Sequence[Cluster]) -> Iterator[Problem]:
    known = ", ".join(cluster.name for cluster in clusters)
    for part in parts_of(spec):
        where, asked = part.section, part.asked
        if not part.on_cluster:
            continue
        if not clusters:
            remedy = "add [hyperpod_clusters.NAME] to muster.toml and deploy the stack, or leave backend out"
            yield StatedProblem("backend", "hyperpod is set, and the stack has no cluster", remedy)
            continue
        if asked.cluster is None and len(clusters) > 1:
            yield StatedProblem(f"{where}.cluster", "missing, and the stack has several", "name one", f"one of {known}")
            continue
        cluster = _cluster(asked, clusters)
        if cluster is None:
            remedy = "correct it, or add it to hyperpod_clusters in muster.toml and deploy the stack"
            yield Problem(f"{where}.cluster", repr(asked.cluster), remedy, f"the stack has {known}")
        elif asked.namespace is not None and asked.namespace not in cluster.namespaces:
            allowed = f"the stack may use {', '.join(cluster.namespaces)} of {cluster.name}"
            remedy = "correct it, or add it to the namespaces of the cluster in muster.toml and deploy the stack"
            yield Problem(f"{where}.namespace", repr(asked.namespace), remedy, allowed)
        if cluster is not None:
            yield from _unlisted(asked, cluster, where)


def _unlisted(asked: HyperPod, cluster: Cluster, where: str) -> Iterator[Problem]:
    """What would give the pods rights or files of others, unless the settings of the cluster list it.

    A path is listed by itself and not by a folder above it: the kubelet follows a link that another pod left there.
    """
    account = asked.service_account
    if account is not None and account.startswith(ACCOUNT_HEAD):
        allowed = f"names that begin with {ACCOUNT_HEAD} are those of runs"
        yield Problem(f"{where}.service_account", repr(account), "leave it out, or use another account", allowed)
    elif account is not None and account not in cluster.service_accounts:
        known = [*cluster.service_accounts]
        yield Problem(f"{where}.service_account", repr(account), *_listing(cluster, "service_accounts", known, account))
    listed = [posixpath.normpath(path) for path in cluster.host_paths]
    for index, volume in enumerate(asked.volumes):
        path = None if volume.host_path is None else posixpath.normpath(volume.host_path)
        if path is not None and path not in listed:
            field = f"{where}.volumes.{index}.host_path"
            yield Problem(field, repr(volume.host_path), *_listing(cluster, "host_paths", listed, path))


def _listing(cluster: Cluster, key: str, known: list[str], added: str) -> tuple[str, str]:
    """What to do about a value that the settings do not list, and what they do."""
    line = f"{key} = {json.dumps([*known, added])}"
    allowed = f"specs may name {', '.join(known) or 'none'} on {cluster.name}"
    return f"leave it out, or write {line} in [hyperpod_clusters.{cluster.name}] of muster.toml and deploy", allowed


def placed(spec: S, clusters: Sequence[Cluster]) -> S:
    """The spec with cluster and namespace of all ranks on clusters written out, as far as the stack has them."""
    parts = [part for part in parts_of(spec) if part.on_cluster]
    on_cluster = spec.backend is Backend.HYPERPOD
    has_section = on_cluster or spec.hyperpod is not None  # which overrides inherit
    own = {
        part.ranks: part.override.model_copy(update={"hyperpod": _filled(part.asked, clusters)})
        for part in parts
        if part.override is not None and (part.override.hyperpod is not None or not has_section)
    }
    update: dict[str, object] = {"overrides": {**spec.overrides, **own}} if own else {}
    if on_cluster or len(own) < len(parts):
        update["hyperpod"] = _filled(spec.hyperpod or HyperPod(), clusters)
    return spec.model_copy(update=update)


def _filled(asked: HyperPod, clusters: Sequence[Cluster]) -> HyperPod:
    cluster = _cluster(asked, clusters)
    if cluster is None:
        return asked
    return asked.model_copy(update={"cluster": cluster.name, "namespace": asked.namespace or cluster.default_namespace})


def _cluster(asked: HyperPod, clusters: Sequence[Cluster]) -> Cluster | None:
    if asked.cluster is None:
        return clusters[0] if len(clusters) == 1 else None
    return next((cluster for cluster in clusters if cluster.name == asked.cluster), None)
