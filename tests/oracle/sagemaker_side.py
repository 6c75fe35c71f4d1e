"""What the SageMaker SDK makes of recipes. Runs in the SDK's own environment: build/sagemaker.

Reads one JSON document with all questions from stdin, and writes one with all answers to stdout. Calls nothing outside
the process: every connection is refused, and a request ends where boto3 would send it.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import json
import logging
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.oracle.exact import decoded, encoded

REGION = "us-west-2"
BUCKET = "sdk-bucket"
TRAINERS = ("sft_trainer.SFTTrainer", "dpo_trainer.DPOTrainer", "rlvr_trainer.RLVRTrainer")
PROTECTED = {"model_type", "model_name_or_path", "dataset_catalog"}


def prepare() -> None:
    """Refuse connections, keep what the SDK writes to the log, and do without what only plots need."""
    os.environ.update(
        AWS_DEFAULT_REGION=REGION, AWS_ACCESS_KEY_ID="none", AWS_SECRET_ACCESS_KEY="none", AWS_EC2_METADATA_DISABLED="true"
    )

    def refuse(*_: object) -> None:
        raise OSError("the oracle opens no connection")

    socket.socket.connect = refuse  # type: ignore[method-assign, assignment]
    socket.getaddrinfo = refuse  # type: ignore[assignment]
    # pandas is 46 MB, and the SDK imports it for data frames that no recipe has.
    pandas = ModuleType("pandas")
    pandas.DataFrame = type("DataFrame", (), {})  # type: ignore[attr-defined]
    sys.modules["pandas"] = pandas
    logging.disable(logging.CRITICAL)


def without_network() -> None:
    """Give the roles that were given, and copy a folder where the SDK would clone a repository of AWS."""
    from sagemaker.train import defaults
    from sagemaker.train.sm_recipes import utils

    def copied(_repository: str, folder: str) -> None:
        for name in ("llama/llama", "mistral/mistral", "mixtral/mixtral", "deepseek/deepseek"):
            script = Path(folder) / "examples" / f"{name}_pretrain.py"
            script.parent.mkdir(parents=True)
            script.touch()
        (Path(folder) / "examples" / "training_orchestrator.py").touch()

    defaults.resolve_and_validate_role = lambda provided_role, **_: provided_role
    utils._run_clone_command_silent = copied


class Captured(Exception):
    """The body of a CreateTrainingJob request, as it would have been sent."""


@cache
def shared_boto_session() -> Any:
    """One session of boto3 for all questions: building its clients takes longer than answering."""
    import boto3

    session = boto3.Session(region_name=REGION)

    def capture(params: dict[str, Any], **_: object) -> None:
        raise Captured(params["body"])

    def refuse(**_: object) -> None:
        raise PermissionError("the oracle asks IAM nothing")

    session.events.register("before-call.sagemaker.CreateTrainingJob", capture)
    session.events.register("before-call.iam", refuse)
    create = cache(session.client)
    session.client = lambda name, *_, **__: create(name)
    return session


def captured_session() -> Any:
    """A session of the SDK that uploads nothing, asks IAM nothing, and whose CreateTrainingJob raises `Captured`."""
    from sagemaker.core.helper.session_helper import Session

    class Capturing(Session):  # type: ignore[misc]
        def __init__(self) -> None:
            self.boto_session = shared_boto_session()
            self.default_bucket_prefix = None
            self.sagemaker_config = {}
            self.config = None
            self.uploads: dict[str, str] = {}

        @property
        def boto_region_name(self) -> str:
            return REGION

        def default_bucket(self) -> str:
            return BUCKET

        def upload_data(self, path: str, bucket: str, key_prefix: str, extra_args: object = None) -> str:
            place = f"s3://{bucket}/{key_prefix}"
            if Path(path).is_file():
                self.uploads[Path(path).name] = Path(path).read_text()
                return f"{place}/{Path(path).name}"
            held = sorted(str(item.relative_to(path)) for item in Path(path).rglob("*") if item.is_file())
            self.uploads[key_prefix.rsplit("/", 1)[-1]] = json.dumps(held)
            for item in Path(path).glob("*.yaml"):
                self.uploads[item.name] = item.read_text()
            return place

    return Capturing()


@contextlib.contextmanager
def replaced(*changes: tuple[Any, str, object]) -> Iterator[None]:
    """Attributes with other values, for a while."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def answer(ask: Callable[[], object]) -> dict[str, Any]:
    """What a question gives, or its error."""
    try:
        return {"value": encoded(ask())}
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}


def written(text: str) -> str:
    """A file with this text."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False) as file:
        file.write(text)
    return file.name


def options_of(case: dict[str, Any]) -> Any:
    """FineTuningOptions of a case's override specification, with the values that the user has set directly."""
    from sagemaker.train.common import FineTuningOptions

    options = FineTuningOptions(case.get("spec") or {})
    for name, value in (case.get("values") or {}).items():
        setattr(options, name, value)
    return options


def resolved(case: dict[str, Any]) -> object:
    """The recipe as a trainer's get_resolved_recipe gives it."""
    import yaml
    from sagemaker.train.common_utils.recipe_utils import get_resolved_recipe_from_context
    from sagemaker.train.recipe_resolver import RecipeResolver

    if not case.get("base") and not case.get("spec"):
        return loaded(case)
    full = yaml.safe_load(case["base"]) if case.get("base") else None
    path = written(case["recipe"]) if case.get("recipe") else None
    if path is None and not case.get("overrides") and not case.get("values"):
        spec = case.get("spec") or {}
        template = {"training_config": {key: "{{" + key + "}}" for key in spec}}
        return RecipeResolver(template, spec, protected_keys=set(PROTECTED), full_recipe_template=full).resolve()
    return get_resolved_recipe_from_context(
        recipe_path=path,
        overrides=case.get("overrides") or None,
        hyperparameters=options_of(case),
        resolved_cache=None,
        template_section=case.get("section", "training_config"),
        protected_keys=set(PROTECTED),
        full_recipe_template=full,
    )


def loaded(case: dict[str, Any]) -> object:
    """A recipe that is its own base, as `ModelTrainer.from_recipe` reads and resolves it."""
    from omegaconf import OmegaConf
    from sagemaker.train.sm_recipes import utils

    utils._register_custom_resolvers()
    recipe = utils._load_base_recipe(written(case["recipe"]), case.get("overrides") or None)
    return OmegaConf.to_container(utils._resolve_final_recipe(recipe))


def from_recipe(case: dict[str, Any]) -> object:
    """The CreateTrainingJob request of `ModelTrainer.from_recipe(...).train()`, and the recipe that it uploads."""
    from sagemaker.core.shapes import shapes
    from sagemaker.train import configs
    from sagemaker.train.model_trainer import ModelTrainer

    job = case["job"]
    given: dict[str, Any] = {}
    if "networking" in job:
        given["networking"] = configs.Networking(**job["networking"])
    if "stopping_condition" in job:
        given["stopping_condition"] = configs.StoppingCondition(**job["stopping_condition"])
    if "output" in job:
        given["output_data_config"] = shapes.OutputDataConfig(**job["output"])
    if "checkpoints" in job:
        given["checkpoint_config"] = shapes.CheckpointConfig(**job["checkpoints"])
    if "package" in job:
        given["model_package_config"] = shapes.ModelPackageConfig(**job["package"])
    if "tags" in job:
        given["tags"] = [configs.Tag(key=key, value=value) for key, value in job["tags"].items()]
    session = captured_session()
    trainer = ModelTrainer.from_recipe(
        training_recipe=written(case["base"] if case.get("base") else case["recipe"]),
        recipe_overrides=case.get("overrides") or None,
        compute=configs.Compute(**job["compute"]),
        training_image=job.get("image"),
        environment=job.get("environment"),
        hyperparameters=job.get("hyperparameters") or {},
        input_data_config=channels(job),
        sagemaker_session=session,
        role=job["role"],
        base_job_name=job.get("base_job_name", case["name"].replace("/", "-")),
        **given,
    )
    return sent(lambda: trainer.train(wait=False, logs=False), session)


def channels(job: dict[str, Any]) -> list[Any] | None:
    """The channels of a case as the SDK takes them."""
    from sagemaker.core.shapes import S3DataSource
    from sagemaker.train.configs import InputData

    return [
        InputData(
            channel_name=name,
            data_source=S3DataSource(
                s3_uri=uri, s3_data_type="S3Prefix", s3_data_distribution_type="FullyReplicated"
            ),
        )
        for name, uri in (job.get("channels") or {}).items()
    ] or None


def sent(train: Callable[[], object], session: Any) -> object:
    """The body of the request that `train` sends, and what it has uploaded."""
    from omegaconf import OmegaConf

    try:
        train()
    except Captured as request:
        recipe = session.uploads.get("recipe.yaml")
        body = request.args[0]
        return {
            "request": json.loads(body),
            "recipe": OmegaConf.to_container(OmegaConf.create(recipe)) if recipe is not None else None,
            "uploads": {name: json.loads(text) for name, text in session.uploads.items() if not name.endswith(".yaml")},
        }
    raise AssertionError("train() has sent no request")


def trained(case: dict[str, Any]) -> object:
    """The request of a trainer's train() with the hub's documents of the case: template, specification, image."""
    from sagemaker.train import base_trainer
    from sagemaker.train.common_utils import finetune_utils
    from sagemaker.train.configs import StoppingCondition
    from sagemaker.train.sft_trainer import SFTTrainer

    job = case["job"]
    session = captured_session()

    def download(_bucket: str, _key: str, path: str) -> None:
        Path(path).write_text(case["base"])

    session.boto_session.client("s3").download_file = download
    trainer = object.__new__(SFTTrainer)
    compute = {"volume_size_in_gb": 30, "keep_alive_period_in_seconds": None, "training_plan_arn": None}
    for name, value in {
        "sagemaker_session": session,
        "role": job["role"],
        "base_job_name": job.get("base_job_name", case["name"].replace("/", "-")),
        "tags": None,
        "environment": job.get("environment") or {},
        "training_image": job.get("image"),
        "compute": SimpleNamespace(**{**compute, **job["compute"]}),
        "training_type": None,
        "training_dataset": (job.get("channels") or {}).get("train"),
        "validation_dataset": (job.get("channels") or {}).get("validation"),
        "model_source": job.get("model_source"),
        "networking": None,
        "stopping_condition": StoppingCondition(max_runtime_in_seconds=3600),
        "s3_output_path": (job.get("output") or {}).get("s3_output_path"),
        "mlflow_resource_arn": job.get("mlflow"),
        "mlflow_experiment_name": None,
        "mlflow_run_name": None,
        "hyperparameters": options_of(case),
        "_model_name": job["model"],
        "_customization_technique": job["technique"],
        "_recipe_path": written(case["recipe"]) if case.get("recipe") else None,
        "_overrides": case.get("overrides") or None,
        "_resolved_recipe_cache": None,
    }.items():
        setattr(trainer, name, value)
    import yaml

    trainer.hyperparameters._full_recipe_template = yaml.safe_load(case["base"])
    spec = {key: dict(entry) for key, entry in (case.get("spec") or {}).items()}
    with replaced(
        (base_trainer, "get_recipe_s3_uri", lambda **_: "s3://hub/recipe.yaml"),
        (base_trainer, "get_training_image", lambda **_: job.get("image")),
        (base_trainer, "_get_smhp_replicas_enum", lambda **_: None),
        (base_trainer, "_get_smhp_instance_type_enum", lambda **_: None),
        (base_trainer, "validate_data_path_exists", lambda *_, **__: None),
        (finetune_utils, "_get_smtj_override_spec", lambda **_: spec),
        (finetune_utils, "_resolve_base_model_weights_s3_uri", lambda **_: job.get("weights")),
    ):
        return sent(lambda: trainer._train_serverful_smtj(wait=False), session)


def interpolated(text: str) -> object:
    """What OmegaConf makes of a YAML text: read, merged with nothing, resolved."""
    from omegaconf import OmegaConf
    from sagemaker.train.sm_recipes.utils import _register_custom_resolvers

    _register_custom_resolvers()
    config = OmegaConf.load(io.StringIO(text))
    OmegaConf.resolve(config)
    return OmegaConf.to_container(config)


def read(text: str) -> object:
    """What OmegaConf reads from a YAML text."""
    from omegaconf import OmegaConf

    return OmegaConf.to_container(OmegaConf.load(io.StringIO(text)))


def signatures(names: list[str]) -> dict[str, Any]:
    """Of classes of the SDK, by their dotted names: every public method with its parameters."""
    found = {}
    for name in names:
        module, _, attribute = name.rpartition(".")
        owner = getattr(importlib.import_module(module), attribute)
        found[name] = {
            method: [parameter for parameter in inspect.signature(function).parameters if parameter not in ("self", "cls")]
            for method, function in inspect.getmembers(owner, callable)
            if not method.startswith("_") or method == "__init__"
        }
    return found


def main() -> None:
    """Answer what stdin asks."""
    questions = json.load(sys.stdin)
    prepare()
    without_network()
    with contextlib.redirect_stdout(sys.stderr):
        answers = {
            "resolved": {case["name"]: answer(lambda: resolved(case)) for case in _cases(questions, "resolved")},
            "from_recipe": {case["name"]: answer(lambda: from_recipe(case)) for case in _cases(questions, "from_recipe")},
            "trained": {case["name"]: answer(lambda: trained(case)) for case in _cases(questions, "trained")},
            "interpolated": [answer(lambda: interpolated(text)) for text in questions.get("interpolated", ())],
            "read": [answer(lambda: read(text)) for text in questions.get("read", ())],
            "signatures": signatures(questions.get("signatures", [])),
        }
    json.dump(answers, sys.stdout)


def _cases(questions: dict[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    for case in questions.get(kind, ()):
        yield decoded(case)


if __name__ == "__main__":
    main()
