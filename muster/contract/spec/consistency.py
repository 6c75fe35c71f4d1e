"""Problems between the fields of a spec, each of which is right by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from muster.contract.errors import Problem, StatedProblem
from muster.contract.spec.backend_rules import backend_problems
from muster.contract.spec.hook import OWN_LOOP, hook_problems
from muster.contract.spec.place_rules import place_problems
from muster.contract.spec.policies import OnEarlyFinish, OnReplicaFailure
from muster.contract.spec.rank_spec import with_override
from muster.contract.spec.recipe_reference import RECIPE_CHANNEL
from muster.contract.spec.retry_budget import DEFAULT_BUDGETS, HISTORY_MAX, RERUN_EVENTS_MAX, Budget, rerun_events
from muster.contract.spec.secret_references import ALLOWED, read_reference, references
from muster.contract.spec.spec_fields import ENVIRONMENT_MAX, PLACED_ENVIRONMENT_MAX, SpecFields
from muster.contract.spec.sweep import sweep_problems, with_sweep
from muster.contract.spec.watch_rules import Watch
from muster.contract.training.algorithm_specification import HYPER_PARAMETERS_MAX
from muster.contract.training.input_channels import CHANNELS_MAX, channel_problems
from muster.contract.training.overrides import Override, rank_problems
from muster.contract.training.source_delivery import PACKAGE_CHANNEL, SOURCE_CHANNEL


class InconsistentSpecError(ValueError):
    """Carries problems between fields through pydantic, which reports one error per validator."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("the fields do not fit together")


def inconsistencies(spec: SpecFields) -> Iterator[Problem]:
    """Every problem between the fields of `spec`. Pure."""
    yield from _program_problems(spec)
    yield from sweep_problems(spec)
    yield from _recipe_problems(spec)
    yield from _elastic_problems(spec)
    yield from _membership_problems(spec)
    parts = (spec, *(with_override(spec, override) for override in spec.overrides.values()))
    yield from spec.limit_problems(spec.replicas, (name for part in parts for name in part.instance_types))
    yield from _training_job_problems(spec)
    yield from _budget_problems(spec)
    yield from _watch_problems(spec)
    if spec.checkpoints is not None:
        yield from spec.checkpoints.problems(counts_steps=spec.has_trainer and spec.trainer != OWN_LOOP)
    yield from _reserved_names(spec.environment, "environment")
    yield from _reference_problems(spec)
    for key in spec.tags:
        if key.casefold().startswith(("muster:", "aws:")):
            remedy = "choose a key that begins with neither aws: nor muster:"
            yield StatedProblem(f"tags.{key}", "this key is reserved", remedy)
    yield from _override_problems(spec)
    yield from _request_problems(spec)
    yield from backend_problems(spec)
    yield from place_problems(spec)


def _training_job_problems(spec: SpecFields) -> Iterator[Problem]:
    """What SageMaker would refuse, or what cannot work as a replica."""
    yield from spec.algorithm_problems()
    yield from spec.source_problems(spec.entrypoint, algorithm=spec.algorithm_name is not None)
    yield from spec.storage_problems(trainer=spec.has_trainer, replicas=spec.replicas)
    yield from spec.resource_problems(spot=spec.spot)
    yield from spec.process_problems(trainer=spec.has_trainer)
    yield from spec.time_problems(spot=spec.has_spot)
    image = spec.training_image_config
    yield from spec.access_problems(
        private_registry=image is not None and image.training_repository_access_mode == "Vpc",
        alone=_program_in_image(spec) and spec.entrypoint is None and spec.source_dir is None,
    )
    yield from spec.observation_problems()
    yield from spec.metrics.problems(spec.metric_definitions, trainer=spec.has_trainer)
    yield from _channel_problems(spec, spec, "input_data_config")
    yield from spec.model_problems(spec.input_data_config)


def _program_problems(spec: SpecFields) -> Iterator[Problem]:
    if spec.trainer is None and spec.entrypoint is None and spec.algorithm_name is None and not _program_in_image(spec):
        remedy = "name the function to call, as package.module:function"
        yield StatedProblem("trainer", "neither trainer nor entrypoint is set", remedy)
    if spec.trainer is not None and spec.entrypoint is not None:
        yield StatedProblem("entrypoint", "set together with trainer", "leave one of the two out")
    if spec.entrypoint is None and spec.arguments:
        yield StatedProblem("arguments", "set without entrypoint", "pass values to a trainer in kwargs")
    if spec.hook is not None:
        yield from hook_problems(spec.trainer, spec.entrypoint, spec.arguments, spec.kwargs)
    elif spec.trainer is None and spec.kwargs:
        yield StatedProblem("kwargs", "set without trainer", "pass values to an entrypoint in arguments")
    if not spec.has_trainer and spec.on_early_finish is OnEarlyFinish.STOP:
        remedy = "leave it out: only replicas with a trainer have rounds"
        yield StatedProblem("on_early_finish", "stop is set without trainer", remedy)


def _program_in_image(spec: SpecFields) -> bool:
    return spec.recipe is not None and spec.recipe.brings_program


def _recipe_problems(spec: SpecFields) -> Iterator[Problem]:
    """What a recipe asks of the rest of the spec."""
    recipe = spec.recipe
    if recipe is None:
        return
    if spec.replicas > 1 and not spec.has_trainer and not spec.sweep and recipe.ranks is None:
        allowed = "several replicas train one model only where Muster calls the program"
        remedy = "set replicas: 1, a trainer or hook, or sweep for recipes that differ"
        yield Problem("replicas", str(spec.replicas), remedy, allowed)
    if recipe.ranks is not None and len(recipe.ranks) != spec.replicas:
        allowed = f"replicas ({spec.replicas})"
        yield Problem("recipe.ranks", f"{len(recipe.ranks)} recipes", "launch the run again from its spec", allowed)


def _elastic_problems(spec: SpecFields) -> Iterator[Problem]:
    """What seats that come and go ask of the rest of the spec."""
    elastic = spec.elastic
    if elastic is None:
        return
    yield from elastic.problems(spec.replicas)
    if elastic.budget_usd_per_hour is not None:
        parts = (spec, *(with_override(spec, override) for override in spec.overrides.values()))
        yield from spec.price_problems(
            "elastic.budget_usd_per_hour", (n for part in parts for n in part.instance_types)
        )
    if not spec.has_trainer:
        remedy = "write one number: only replicas with a trainer can join and leave"
        yield StatedProblem("replicas", "min, start and max are set without trainer", remedy)
    if spec.sweep:
        yield StatedProblem("replicas", "min, start and max are set together with sweep", "write one number")
    if spec.on_replica_failure is OnReplicaFailure.TERMINATE:
        remedy = "leave it out, or write one number of replicas"
        yield StatedProblem("on_replica_failure", "terminate is set where replicas come and go", remedy)
    if spec.min_replicas != elastic.min:
        yield Problem("min_replicas", str(spec.min_replicas), "leave it out", f"replicas.min ({elastic.min})")


def _membership_problems(spec: SpecFields) -> Iterator[Problem]:
    # Where replicas come and go it is replicas.min, of which the problems before speak.
    least = spec.min_replicas if spec.elastic is None else None
    if least is not None and least > spec.replicas:
        yield Problem("min_replicas", str(least), "lower it", f"at most replicas ({spec.replicas})")
    elif least is not None and least < spec.replicas and spec.on_replica_failure is OnReplicaFailure.TERMINATE:
        allowed = f"with on_replica_failure: terminate, the run needs all {spec.replicas} replicas"
        remedy = "set on_replica_failure: continue, or leave min_replicas out"
        yield Problem("min_replicas", str(least), remedy, allowed)
    members = spec.rendezvous.min_participants
    if members is not None and members > spec.quorum and not spec.sweep:
        name = "replicas.min" if spec.elastic else "min_replicas" if spec.quorum < spec.replicas else "replicas"
        allowed = f"at most {name} ({spec.quorum})"
        yield Problem("rendezvous.min_participants", str(members), f"lower it, or raise {name}", allowed)


def _watch_problems(spec: SpecFields) -> Iterator[Problem]:
    if not spec.has_trainer and spec.watch != Watch():
        yield StatedProblem("watch", "set without trainer", "leave it out: only replicas with a trainer are watched")
    for rule in spec.watch.excluding if spec.min_participants >= spec.replicas else ():
        statement = f"exclude is set, and a round needs the contributions of all {spec.replicas} replicas"
        remedy = "lower rendezvous.min_participants, or choose report, restart or stop"
        yield StatedProblem(f"watch.{rule}.then", statement, remedy)


def _budget_problems(spec: SpecFields) -> Iterator[Problem]:
    for failure_class, budget in spec.reruns.items():
        if budget.max_delay_seconds < budget.delay_seconds:
            allowed = f"at least delay_seconds ({budget.delay_seconds})"
            field = f"reruns.{failure_class}.max_delay_seconds"
            yield Problem(field, str(budget.max_delay_seconds), "raise it", allowed)
    # Every rerun, and every piece of its wait, takes history of the replica's workflow.
    budgets = [spec.budget(failure_class) for failure_class in DEFAULT_BUDGETS]
    budgets.append(Budget(max_reruns=spec.watch.max_restarts))
    events = sum(rerun_events(delay) for budget in budgets for delay in budget.longest_delays())
    if events > RERUN_EVENTS_MAX:
        statement = f"these budgets can take up to {events:,} history events per replica"
        allowed = f"Step Functions allows {HISTORY_MAX:,}, of which reruns may use {RERUN_EVENTS_MAX:,}"
        yield StatedProblem("reruns", statement, "lower max_reruns or max_delay_seconds", allowed)


def _override_problems(spec: SpecFields) -> Iterator[Problem]:
    yield from rank_problems(spec.overrides, spec.replicas)
    for ranks, override in spec.overrides.items():
        field = f"overrides.{ranks}"
        yield from _reserved_names(override.environment, f"{field}.environment")
        if override.fallback_instance_types is not None and override.instance_type is None:
            where = f"{field}.fallback_instance_types"
            yield StatedProblem(where, "set without instance_type", "set instance_type as well")
        merged = with_override(spec, override)
        if override.processes is not None and spec.processes is None:
            for problem in merged.process_problems(trainer=spec.has_trainer):
                yield replace(problem, field=f"{field}.{problem.field}")
        if override.changes_instance:
            for problem in merged.resource_problems(spot=merged.spot):
                yield replace(problem, field=f"{field}.{problem.field}")
        yield from _channel_problems(spec, override, f"{field}.input_data_config")


def _request_problems(spec: SpecFields) -> Iterator[Problem]:
    """What a rank would send too much of: its override, its values of the sweep and what Muster adds count as well."""
    own = {} if spec.source_dir is None else {SOURCE_CHANNEL: "source_dir", PACKAGE_CHANNEL: "source_dir"}
    own |= {} if spec.recipe is None else {RECIPE_CHANNEL: "recipe"}
    limits = {
        "input_data_config": CHANNELS_MAX - len(own),
        "environment": ENVIRONMENT_MAX if spec.places is None else PLACED_ENVIRONMENT_MAX,
        "hyper_parameters": HYPER_PARAMETERS_MAX,
    }
    common = with_sweep(spec, 0)  # every rank has the same names
    for ranks, override in {"": None, **spec.overrides}.items():
        section, given = ("", spec) if override is None else (f"overrides.{ranks}.", override)
        for name in sorted(own.keys() & {channel.channel_name for channel in given.input_data_config}):
            statement = f"the channel name {name} is reserved"
            yield StatedProblem(f"{section}input_data_config", statement, "rename it", f"{own[name]} uses it")
        sent = common if override is None else with_sweep(with_override(spec, override), 0)
        for field, most in limits.items():
            count = len(getattr(sent, field))
            # More in all ranks is a problem of the run alone.
            if count > max(most, 0 if override is None else len(getattr(common, field))):
                found = f"{count} {'channels' if field == 'input_data_config' else 'entries'}"
                allowed = f"at most {most} for a rank beside what Muster adds, overrides and sweep included"
                yield Problem(f"{section}{field}", found, f"remove {count - most}", allowed)


def _channel_problems(spec: SpecFields, part: SpecFields | Override, field: str) -> Iterator[Problem]:
    vpc = spec.vpc_config is not None or part.vpc_config is not None
    return channel_problems(part.input_data_config, spec.training_input_mode, field, vpc=vpc)


def _reserved_names(environment: Iterable[str], field: str) -> Iterator[Problem]:
    for key in environment:
        if key.startswith("MUSTER_"):
            remedy = "choose a name that does not begin with MUSTER_"
            yield StatedProblem(f"{field}.{key}", "this name is reserved", remedy)


def _reference_problems(spec: SpecFields) -> Iterator[Problem]:
    """References to secrets that nothing could read."""
    for field, value in references(spec).items():
        if read_reference(value) is None:
            # It may be a secret itself, so it is not shown.
            statement = "it begins as a reference to a secret, and is none"
            yield StatedProblem(field, statement, "correct it, or begin the value with another word", ALLOWED)
        elif not spec.has_trainer and spec.source_dir is None:
            statement = "it refers to a secret, which Muster's program in the container would read: there is none"
            yield StatedProblem(field, statement, "set source_dir, or let the program read the secret itself")
