"""Documents of other versions of Muster: older ones are upgraded, newer ones keep what this version does not know.

`stored/` holds one sample of every form of every stored document, as Muster wrote it. Never regenerate one: documents
that were stored then are read by today's code. A new document, or a new form, gets a new sample.
"""

import json
import pkgutil
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import muster.contract.run
import muster.contract.spec
import muster.replica.rounds
import muster.replica.store
import muster.replica.wire
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.document import FormStep, StoredDocument
from muster.contract.errors import DocumentError, NewerDocumentError
from muster.contract.run.attempt import Attempt
from muster.contract.run.commit import Commit
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.plan import Plan
from muster.contract.run.record import Record
from muster.contract.run.result import ReplicaOutcome, Result
from muster.contract.run.run_document import RunDocument
from muster.contract.run.run_queue import Queue, QueuedRun
from muster.contract.spec.stack_defaults import StackDefaults
from muster.contract.spec.watch_rules import Slow, Watch
from muster.replica.wire.headers import roster_digest

SAMPLES = Path(__file__).parent / "stored"
OF_OPTIONS = {"elastic": "contract", "hyperpod": "contract", "places": "contract", "tiers": "replica"}
ROOMS = (
    *(muster.contract.run, muster.contract.spec, muster.replica.rounds, muster.replica.store, muster.replica.wire),
    *(
        import_module(f"muster.options.{option}.{runtime}")
        for option, runtime in OF_OPTIONS.items()
        if find_spec(f"muster.options.{option}") is not None
    ),
)
# A newer version has added a field to each part of a document.
ADDED = {"added_later": {"by": ["a", "newer", "version"]}}


def kinds() -> list[type[StoredDocument]]:
    """Every class of stored documents."""
    for room in ROOMS:
        for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
            import_module(module.name)
    found: list[type[StoredDocument]] = []
    pending = [StoredDocument]
    while pending:
        below = [kind for kind in pending.pop().__subclasses__() if kind.__module__.startswith("muster.")]
        found += below
        pending += below
    return sorted(found, key=lambda kind: kind.__name__)


KINDS = kinds()


def sample(kind: type[StoredDocument], form: int | None = None) -> dict[str, Any]:
    """The sample of a form, the current one unless given."""
    path = SAMPLES / f"{kind.__name__.lstrip('_')}-{form or kind.current_form()['version']}.json"
    return dict(json.loads(path.read_text(encoding="utf-8")))


FREE = {"hyper_parameters", "metrics", "settings", "kwargs", "tags", "spec", "overrides", "values", "inputs"}


def enlarged(value: Any) -> Any:
    """`value` with `ADDED` in every part of it; not in mappings whose keys are the user's, nor in a spec."""
    if isinstance(value, list):
        return [enlarged(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: item if name in FREE else enlarged(item) for name, item in value.items()} | ADDED


def read(kind: type[StoredDocument], fields: dict[str, Any]) -> Any:
    return kind.from_json(json.dumps(fields), "s3://bucket/key")


def changed(before: Any, after: Any, at: str = "") -> list[str]:
    """The paths at which `after` does not have what `before` has; it may have more fields, with their defaults."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [path for name, item in before.items() for path in changed(item, after.get(name), f"{at}.{name}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [path for index, (one, other) in pairs for path in changed(one, other, f"{at}[{index}]")]
    return [] if before == after else [at]


def written(document: StoredDocument) -> dict[str, Any]:
    return dict(json.loads(document.to_json()))


def test_every_form_of_a_document_has_a_sample_that_today_s_code_reads() -> None:
    assert len(KINDS) > 25
    for kind in KINDS:
        form = kind.current_form()
        for number in range(1, len(kind.steps) + 2):
            after = written(read(kind, sample(kind, number)))
            assert {name: after[name] for name in form} == form, f"{kind.__name__}: the class's defaults are its form's"
        assert changed(sample(kind), written(read(kind, sample(kind)))) == [], kind.__name__


def test_what_a_newer_version_has_added_is_kept_and_written_back() -> None:
    for kind in KINDS:
        if kind is not StackDefaults:
            newer = enlarged(sample(kind))
            assert changed(newer, written(read(kind, newer))) == [], kind.__name__


def refusal(kind: type[StoredDocument], fields: dict[str, Any]) -> str:
    try:
        read(kind, fields)
    except DocumentError as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


def test_a_document_in_a_newer_form_is_refused_and_says_which_version_reads_it() -> None:
    for kind in KINDS:
        fields = {**sample(kind), "version": len(kind.steps) + 2, "readable_from": "9.8.7"}
        newer = refusal(kind, fields)
        assert newer.startswith(f"{NewerDocumentError.__name__}: s3://bucket/key "), (kind, newer)
        assert "Muster 9.8.7 or newer" in newer, kind
        assert "version of Muster that wrote it" in refusal(kind, {**fields, "readable_from": "\x1b[31m"}), kind
    # A version that is no form is a damaged document.
    for version in (0, True, "1", 1.5, None):
        said = refusal(Record, {**sample(Record), "version": version})
        assert said.startswith(f"{DocumentError.__name__}: "), (version, said)
        assert "version: " in said, version


class Third(StoredDocument):
    """A document whose form has changed twice."""

    steps: ClassVar[tuple[FormStep, ...]] = (
        FormStep("0.2.0", lambda fields: {**fields, "seconds": fields["minutes"] * 60}),  # type: ignore[operator]
        FormStep("0.3.0", lambda fields: {**fields, "label": str(fields.get("label", "none")).upper()}),
    )
    version: int = 3
    readable_from: str = "0.3.0"
    seconds: int
    label: str


def test_all_steps_that_a_document_lacks_are_applied_in_order() -> None:
    assert read(Third, {"version": 2, "seconds": 7, "label": "a"}).label == "A"
    assert read(Third, {"version": 3, "seconds": 7, "label": "a"}).label == "a"
    upgraded = {"version": 3, "readable_from": "0.3.0", "seconds": 120, "label": "NONE", "minutes": 2, "other": 1}
    assert written(read(Third, {"minutes": 2, "other": 1})) == upgraded


def test_a_value_that_a_newer_version_has_added_is_unknown_and_no_error() -> None:
    assert read(Fence, {**sample(Fence), "cause": "too-warm"}).cause is FenceCause.UNKNOWN
    assert FenceCause.UNKNOWN.is_limit, "a continuation must not evade a limit that this version does not know"
    record = sample(Record)
    record["attempts"][0]["failure_class"] = "too-warm"
    assert read(Record, record).current.failure_class is FailureClass.UNKNOWN
    result = sample(Result)
    result["replicas"][0]["outcome"] = "too-warm"
    assert read(Result, result).replicas[0].outcome is ReplicaOutcome.UNKNOWN


def test_a_plan_s_spec_may_have_fields_and_failure_classes_of_a_newer_version() -> None:
    fields = sample(Plan)
    known = read(Plan, fields)
    fields["spec"] |= ADDED
    for part in ("rendezvous", "vpc_config", "launch_gate", "continue"):
        fields["spec"][part] |= ADDED
    fields["spec"]["reruns"]["too-warm"] = {"max_reruns": 3}
    newer = read(Plan, fields)
    assert newer.spec == known.spec
    assert newer.digest == known.digest == fields["digest"]
    # Whatever the rules between fields refuse today: an older version may have accepted it.
    fields["spec"] |= {"algorithm_name": "algorithm"}
    assert read(Plan, fields).spec.of_rank(0).algorithm_name == "algorithm"


def test_images_of_other_versions_read_the_rules_of_a_run() -> None:
    document = read(RunDocument, sample(RunDocument)).model_copy(update={"watch": Watch(slow=Slow(factor=4.0))})
    # An older one refuses a rule that it does not know, so the document has what the spec has changed.
    assert written(document)["watch"] == {"slow": {"factor": 4.0}}
    for fields in (written(document), {**written(document), "watch": {**ADDED, "slow": {"factor": 4.0}}}):
        assert read(RunDocument, fields).watch == document.watch


def test_the_digest_of_a_round_s_members_is_the_same_in_every_version() -> None:
    commit = read(Commit, sample(Commit))
    [member] = commit.members
    plain = member.model_copy(update={"metrics": {}})
    # A version in which the field with this default did not exist.
    older = type(member).model_construct(**{name: value for name, value in plain if name != "metrics"})
    assert roster_digest(commit.model_copy(update={"members": (older,)})) == roster_digest(
        commit.model_copy(update={"members": (plain,)})
    )


def test_what_is_merged_or_rewritten_keeps_what_others_have_added() -> None:
    seen = Attempt.model_validate({"attempt": 1, "job": "job", "status": "Completed", **ADDED})
    assert Attempt(attempt=1, job="job").merged(seen).status == "Completed"
    queue = read(Queue, enlarged(sample(Queue)))
    after = written(queue.asked(QueuedRun(run="next", execution_arn="arn:next", replicas=1, asked_at="t"), 10))
    assert after["added_later"] == ADDED["added_later"]
    assert [run.get("added_later") for run in after["runs"]] == [ADDED["added_later"], None]
