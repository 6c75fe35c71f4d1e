"""From the protocol's arguments of a launch to a spec. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from muster.contract.errors import MusterError, SpecError, StatedProblem
from muster.contract.spec.hook import OWN_LOOP, own_loop_kwargs
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec

Fields = Mapping[str, Any]
"""Fields of a spec, or arguments of a trainer, as a caller writes them: `parse_spec` checks them."""

_TYPES = {
    "A100": "ml.p4d.24xlarge",
    "H100": "ml.p5.48xlarge",
    "H200": "ml.p5e.48xlarge",
    "B200": "ml.p6-b200.48xlarge",
    "L40S": "ml.g6e.12xlarge",
    "A10G": "ml.g5.2xlarge",
    "L4": "ml.g6.2xlarge",
}
"""The instance types behind the protocol's abstract GPU names."""


class GpuError(MusterError, ValueError):
    """No instance type is known for a GPU."""

    def __init__(self, gpu: str) -> None:
        super().__init__(f"gpu: found {gpu!r}; choose {', '.join(_TYPES)}, or an instance type such as ml.g5.2xlarge.")


def instance_type_of(gpu: str) -> str:
    """The instance type for `gpu`, which may be an instance type itself.

    Raises:
        GpuError: neither a known GPU nor an instance type.
    """
    if gpu.startswith("ml."):
        return gpu
    if gpu not in _TYPES:
        raise GpuError(gpu)
    return _TYPES[gpu]


def launch_spec(fields: Fields, entrypoint: str | Callable[..., object], arguments: Fields) -> Spec | dict[str, Any]:
    """The spec of a launch: `fields`, and the trainer that `entrypoint` or `arguments` name.

    With a `rendezvous_uri`, which Muster's launches do not need, it is called in the way of the former entrypoint. A
    spec with a recipe is a document, which the launch resolves.

    Raises:
        SpecError: the spec has problems, all of which are listed.
    """
    brings_loop = bool(arguments.get("rendezvous_uri"))
    document = {
        # A replica was one process, on any instance.
        **({"processes": 1} if brings_loop else {}),
        **fields,
        "trainer": _trainer(entrypoint, arguments),
        "kwargs": arguments.get("trainer_kwargs") or {},
    }
    if document.get("recipe") is not None:
        if not brings_loop:
            return document
        remedy = "leave rendezvous_uri out, so that the trainer is called with the context, or the recipe"
        raise SpecError([StatedProblem("recipe", "set for a trainer that brings its own loop", remedy)])
    spec = parse_spec(document)
    if not brings_loop:
        return spec
    kwargs = own_loop_kwargs(spec.trainer or "", spec.kwargs)
    return spec.model_copy(update={"trainer": OWN_LOOP, "kwargs": kwargs})


def _trainer(entrypoint: str | Callable[..., object], arguments: Fields) -> str:
    module = arguments.get("trainer_module")
    if module:
        return f"{module}:{arguments.get('trainer_fn', 'train')}"
    if callable(entrypoint) and hasattr(entrypoint, "__qualname__"):
        return f"{entrypoint.__module__}:{entrypoint.__qualname__}"
    return entrypoint if isinstance(entrypoint, str) else repr(entrypoint)
