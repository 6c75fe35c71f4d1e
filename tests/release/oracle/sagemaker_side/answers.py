"""What the SageMaker SDK makes of recipes: the resolved document, and the request that it would send."""

import contextlib
import importlib
import inspect
import io
import json
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import yaml
from omegaconf import OmegaConf
from sagemaker.core.helper.session_helper import Session
from sagemaker.core.shapes import S3DataSource, shapes
from sagemaker.train import base_trainer, configs, defaults
from sagemaker.train.common import FineTuningOptions
from sagemaker.train.common_utils import finetune_utils
from sagemaker.train.common_utils.recipe_utils import get_resolved_recipe_from_context
from sagemaker.train.model_trainer import ModelTrainer
from sagemaker.train.recipe_resolver import RecipeResolver
from sagemaker.train.sft_trainer import SFTTrainer
from sagemaker.train.sm_recipes import utils

from tests.release.oracle.exact import decoded, encoded
from tests.release.oracle.sagemaker_side.closed_process import REGION
from tests.release.oracle.sagemaker_side.composition import composed

BUCKET = "sdk-bucket"
PROTECTED = {"model_type", "model_name_or_path", "dataset_catalog"}


class CapturedRequestError(Exception):
    """The body of a CreateTrainingJob request, as it would have been sent."""


@cache
def shared_boto_session() -> Any:
    """One session of boto3 for all questions: building its clients takes longer than answering."""
    session = boto3.Session(region_name=REGION)

    def capture(params: dict[str, Any], **_: object) -> None:
        raise CapturedRequestError(params["body"])

    def refuse(**_: object) -> None:
        message = "the oracle asks IAM nothing"
        raise PermissionError(message)

    session.events.register("before-call.sagemaker.CreateTrainingJob", capture)
    session.events.register("before-call.iam", refuse)
    create = cache(session.client)
    session.client = lambda name, *_, **__: create(name)
    return session


def captured_session() -> Any:
    """A session that uploads nothing, asks IAM nothing, and whose CreateTrainingJob raises CapturedRequestError."""

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


def without_network() -> None:
    """Give the roles that were given, and copy a folder where the SDK would clone a repository of AWS."""

    def copied(_repository: str, folder: str) -> None:
        for name in ("llama/llama", "mistral/mistral", "mixtral/mixtral", "deepseek/deepseek"):
            script = Path(folder) / "examples" / f"{name}_pretrain.py"
            script.parent.mkdir(parents=True)
            script.touch()
        (Path(folder) / "examples" / "training_orchestrator.py").touch()

    defaults.resolve_and_validate_role = lambda provided_role, **_: provided_role
    utils._run_clone_command_silent = copied


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
    options = FineTuningOptions(case.get("spec") or {})
    for name, value in (case.get("values") or {}).items():
        setattr(options, name, value)
    return options


def template_of(case: dict[str, Any]) -> object:
    """The template as a trainer fetches it: None where PyYAML cannot read it."""
    try:
        return yaml.safe_load(case["base"]) if case.get("base") else None
    except yaml.YAMLError:
        return None


def resolved(case: dict[str, Any]) -> object:
    """The recipe as a trainer's get_resolved_recipe gives it."""
    if not case.get("base") and not case.get("spec"):
        return loaded(case)
    full = template_of(case)
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
    utils._register_custom_resolvers()
    recipe = utils._load_base_recipe(written(case["recipe"]), case.get("overrides") or None)
    return OmegaConf.to_container(utils._resolve_final_recipe(recipe))


def from_recipe(case: dict[str, Any]) -> object:
    """The CreateTrainingJob request of `ModelTrainer.from_recipe(...).train()`, and the recipe that it uploads."""
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
    return [
        configs.InputData(
            channel_name=name,
            data_source=S3DataSource(s3_uri=uri, s3_data_type="S3Prefix", s3_data_distribution_type="FullyReplicated"),
        )
        for name, uri in (job.get("channels") or {}).items()
    ] or None


def sent(train: Callable[[], object], session: Any) -> object:
    """The body of the request that `train` sends, and what it has uploaded."""
    try:
        train()
    except CapturedRequestError as request:
        recipe = session.uploads.get("recipe.yaml")
        body = request.args[0]
        return {
            "request": json.loads(body),
            "recipe": OmegaConf.to_container(OmegaConf.create(recipe)) if recipe is not None else None,
            "uploads": {name: json.loads(text) for name, text in session.uploads.items() if not name.endswith(".yaml")},
        }
    message = "train() has sent no request"
    raise AssertionError(message)


def trained(case: dict[str, Any]) -> object:
    """The request of a trainer's train() with the hub's documents of the case: template, specification, image."""
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
        "stopping_condition": configs.StoppingCondition(max_runtime_in_seconds=3600),
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

    trainer._fetch_full_recipe_template = lambda: template_of(case)
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
    utils._register_custom_resolvers()
    config = OmegaConf.load(io.StringIO(text))
    OmegaConf.resolve(config)
    return OmegaConf.to_container(config)


def read(text: str) -> object:
    """What OmegaConf reads from a YAML text."""
    return OmegaConf.to_container(OmegaConf.load(io.StringIO(text)))


def signatures(names: list[str]) -> dict[str, dict[str, list[str]]]:
    """Of classes of the SDK, by their dotted names: every public method of the SDK with its parameters."""
    found = {}
    for name in names:
        module, _, attribute = name.rpartition(".")
        owner = getattr(importlib.import_module(module), attribute)
        methods = [
            (method, function)
            for method, function in inspect.getmembers(owner, callable)
            if (not method.startswith(("_", "model_post")) or method == "__init__")
            and str(getattr(function, "__module__", "")).startswith("sagemaker.")
        ]
        found[name] = {
            method: [one for one in inspect.signature(function).parameters if one not in ("self", "cls")]
            for method, function in methods
        }
    return found


def answers(questions: dict[str, Any]) -> dict[str, Any]:
    """The answers to all questions: of recipes by their names, of texts in their order."""
    without_network()
    found: dict[str, Any] = {}
    for kind, ask in (("resolved", resolved), ("from_recipe", from_recipe), ("trained", trained)):
        cases = map(decoded, questions.get(kind, ()))
        found[kind] = {case["name"]: answer(partial(ask, case)) for case in cases}
    for kind, look in (("interpolated", interpolated), ("read", read), ("composed", composed)):
        found[kind] = [answer(partial(look, text)) for text in questions.get(kind, ())]
    return {**found, "signatures": signatures(questions.get("signatures", []))}
