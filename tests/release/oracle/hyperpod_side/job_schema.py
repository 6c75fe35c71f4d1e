"""Prints the schema of HyperPodPyTorchJob, derived from the models of AWS's SDK for HyperPod.

The CRD's own YAML is not public; the SDK's pydantic models mirror it. `make job-schema` runs it where
`sagemaker-hyperpod` is installed:

    build/kubernetes/bin/python tests/release/oracle/hyperpod_side/job_schema.py > build/job_schema.json

What is left out: titles and descriptions, which are most of the text, and null, which no field of a job takes. What is
added: the envelope of a Kubernetes object and the values that the SDK's descriptions list. Nothing may have a field
that the models do not have, at the top of the specification either, where the SDK itself ignores one.
"""

import importlib.util
import json
import sys
from importlib.metadata import files
from typing import Any

_DISTRIBUTION = "sagemaker-hyperpod"
_MODULE = "hyperpod_pytorch_job_unified_config.py"
_ROOTS = {"JobSpec": "_HyperPodPytorchJob", "JobStatus": "HyperPodPytorchJobStatus"}
# Values and limits that stand in the descriptions of the models, or in the documentation of Kubernetes. Each is added
# to the property of a definition.
_ADDED: dict[tuple[str, str], dict[str, Any]] = {
    ("Conditions", "status"): {"enum": ["True", "False", "Unknown"]},
    ("JobSpec", "nprocPerNode"): {"pattern": "^(auto|cpu|gpu|[1-9][0-9]*)$"},
    ("JobSpec", "replicaSpecs"): {"minItems": 1},
    ("LogMonitoringConfiguration", "operator"): {"enum": ["gt", "lt", "eq", "gteq", "lteq"]},
    ("ReplicaSpec", "maxReplicas"): {"minimum": 0},
    ("ReplicaSpec", "replicas"): {"minimum": 0},
    ("ReplicaSpec", "spares"): {"minimum": 0},
    ("RunPolicy", "activeDeadlineSeconds"): {"minimum": 1},
    ("RunPolicy", "cleanPodPolicy"): {"enum": ["All", "OnlyComplete", "None"]},
    ("RunPolicy", "ttlSecondsAfterFinished"): {"minimum": -1},
    **{("ElasticPolicy", name): {"minimum": 1} for name in ("minReplicas", "maxReplicas", "replicaIncrementStep")},
    **{
        (kind, "imagePullPolicy"): {"enum": ["Always", "IfNotPresent", "Never"]}
        for kind in ("Containers", "EphemeralContainers", "InitContainers")
    },
    **{
        (kind, "terminationMessagePolicy"): {"enum": ["File", "FallbackToLogsOnError"]}
        for kind in ("Containers", "EphemeralContainers", "InitContainers")
    },
    ("Env", "name"): {"minLength": 1},
    ("Ports", "containerPort"): {"minimum": 1, "maximum": 65_535},
    ("Ports", "protocol"): {"enum": ["TCP", "UDP", "SCTP"]},
    ("Spec", "containers"): {"minItems": 1},
    ("Spec", "restartPolicy"): {"enum": ["Always", "OnFailure", "Never"]},
    ("Spec", "terminationGracePeriodSeconds"): {"minimum": 0},
    ("Tolerations", "effect"): {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
    ("Tolerations", "operator"): {"enum": ["Exists", "Equal"]},
}


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    kinds = {name: {"type": kind} if isinstance(kind, str) else kind for name, kind in properties.items()}
    head = {"type": "object", "additionalProperties": False, "properties": kinds}
    return {**head, "required": list(required)} if required else head


def _list(kind: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": kind}


def _of(definition: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{definition}"}


# The SDK has one model where Kubernetes has two types of the same name: these are the others, of Kubernetes' API, and
# where they belong.
_SEPARATE: dict[str, dict[str, Any]] = {
    "PodAffinityTerm": _object(
        ("topologyKey",),
        labelSelector=_of("LabelSelector"),
        matchLabelKeys=_list({"type": "string"}),
        mismatchLabelKeys=_list({"type": "string"}),
        namespaceSelector=_of("LabelSelector"),
        namespaces=_list({"type": "string"}),
        topologyKey="string",
    ),
    "PodSecurityContext": _object(
        appArmorProfile=_of("AppArmorProfile"),
        fsGroup="integer",
        fsGroupChangePolicy="string",
        runAsGroup="integer",
        runAsNonRoot="boolean",
        runAsUser="integer",
        seLinuxOptions=_of("SeLinuxOptions"),
        seccompProfile=_of("SeccompProfile"),
        supplementalGroups=_list({"type": "integer"}),
        supplementalGroupsPolicy="string",
        sysctls=_list(_object(("name", "value"), name="string", value="string")),
        windowsOptions=_of("WindowsOptions"),
    ),
    "SecretVolume": _object(defaultMode="integer", items=_list(_of("Items")), optional="boolean", secretName="string"),
    "WeightedPodAffinityTerm": _object(
        ("podAffinityTerm", "weight"), podAffinityTerm=_of("PodAffinityTerm"), weight="integer"
    ),
}
_PLACES: dict[tuple[str, str], dict[str, Any]] = {
    ("Spec", "securityContext"): _of("PodSecurityContext"),
    ("Volumes", "secret"): _of("SecretVolume"),
    **{
        (kind, f"{strictness}DuringSchedulingIgnoredDuringExecution"): _list(_of(term))
        for kind in ("PodAffinity", "PodAntiAffinity")
        for strictness, term in (("preferred", "WeightedPodAffinityTerm"), ("required", "PodAffinityTerm"))
    },
}
_LABEL_KEY = r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
_LABEL_VALUE = r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$"
# The operator names pods and services after the job, so its name is a DNS label.
_NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
_ENVELOPE: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"type": "string", "enum": ["sagemaker.amazonaws.com/v1"]},
        "kind": {"type": "string", "enum": ["HyperPodPyTorchJob"]},
        "metadata": {
            # The API server checks and fills in what else stands there.
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "pattern": _NAME},
                "namespace": {"type": "string", "pattern": _NAME},
                "labels": {
                    "type": "object",
                    "propertyNames": {"pattern": _LABEL_KEY},
                    "additionalProperties": {"type": "string", "pattern": _LABEL_VALUE},
                },
                "annotations": {
                    "type": "object",
                    "propertyNames": {"pattern": _LABEL_KEY},
                    "additionalProperties": {"type": "string"},
                },
            },
        },
        "spec": {"$ref": "#/$defs/JobSpec"},
        "status": {"$ref": "#/$defs/JobStatus"},
    },
}


def models() -> Any:
    """The module of the SDK's models, loaded by itself: its package imports everything else that the SDK has."""
    listed = files(_DISTRIBUTION) or []
    path = next(str(file.locate()) for file in listed if file.name == _MODULE)
    spec = importlib.util.spec_from_file_location("hyperpod_models", path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def reduced(node: Any) -> Any:
    """A part of a schema without titles, descriptions and null."""
    if isinstance(node, list):
        return [reduced(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {name: item for name, item in node.items() if name not in ("title", "description")}
    if isinstance(kept.get("properties"), dict):
        kept["properties"] = {name: reduced(item) for name, item in kept["properties"].items()}
    kept = {name: item if name == "properties" else reduced(item) for name, item in kept.items()}
    if kept.get("default", 0) is None:
        del kept["default"]
    if "anyOf" in kept:
        choices = [choice for choice in kept.pop("anyOf") if choice != {"type": "null"}]
        # One choice, or several types without anything else.
        merged = choices[0] if len(choices) == 1 else {"type": [choice["type"] for choice in choices]}
        if len(choices) > 1 and any(set(choice) != {"type"} for choice in choices):
            message = f"several choices that are more than types: {choices}"
            raise ValueError(message)
        kept = {**merged, **kept}
    return kept


def job_schema() -> dict[str, Any]:
    """The schema of the whole object."""
    module = models()
    definitions: dict[str, Any] = {}
    for name, model in _ROOTS.items():
        schema = getattr(module, model).model_json_schema(by_alias=False)
        definitions |= {kind: reduced(found) for kind, found in schema.pop("$defs").items()}
        definitions[name] = {**reduced(schema), "additionalProperties": False}
    for (kind, name), limits in _ADDED.items():
        definitions[kind]["properties"][name].update(limits)
    definitions |= _SEPARATE
    for (kind, name), found in _PLACES.items():
        definitions[kind]["properties"][name] = found
    return {**_ENVELOPE, "$defs": dict(sorted(definitions.items()))}


def as_text(schema: dict[str, Any]) -> str:
    """The schema as JSON, one definition per line, so that a difference shows which one has changed."""
    definitions = schema["$defs"]
    head = json.dumps({name: item for name, item in schema.items() if name != "$defs"}, separators=(",", ":"))
    lines = ",\n".join(
        f"{json.dumps(name)}:{json.dumps(item, sort_keys=True, separators=(',', ':'))}"
        for name, item in definitions.items()
    )
    return f'{head[:-1]},\n"$defs":{{\n{lines}\n}}}}\n'


if __name__ == "__main__":
    sys.stdout.write(as_text(job_schema()))
