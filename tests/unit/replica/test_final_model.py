"""The model that replicas leave: what is written, by whom, and that the safetensors library reads it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from muster.contract.run.model import ModelEvaluation, ModelFile, ModelKind, ModelManifest
from muster.contract.spec.policies import OnEarlyFinish
from muster.replica.errors import FencedError, ParametersError, TrainerError
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.metrics import Metrics
from muster.replica.model import weight_files as weight_files_module
from muster.replica.model import weights_writer
from muster.replica.model.final_model import FinalModel, adapter_name
from muster.replica.model.tensor_source import Raw
from muster.replica.model.weight_files import Tensor, index_of, weight_files
from muster.replica.model.weights_writer import Target, WeightsWriter
from muster.replica.parts.link import Alone
from muster.replica.parts.local_shard import LocalShard
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.store.local_store import LocalStore
from muster.replica.store.transport import StoreUnavailableError
from muster.replica.wire import keys
from tests.support.groups import Shared, ThreadLink
from tests.support.peers import Faults, FaultyStore, Killed, Run, gradient_of, missing_only_in, run_all
from tests.support.waiting import wait_until

COUNT = 300

NUMBERS = {
    "embedding.weight": np.arange(35, dtype=np.float32).reshape(7, 5),
    "norm.mean": np.arange(6, dtype=np.float16),
    "counter": np.array(1234567890123, np.int64),
    "mask": np.array([True, False, True]),
    "empty": np.zeros((0, 4), np.float32),
    "head.weight": np.linspace(0, 1, 60, dtype=np.float64).reshape(6, 10),
    "scale": np.array(0.5, np.float32),
}
TYPES = {"float32": "F32", "float16": "F16", "int64": "I64", "bool": "BOOL", "float64": "F64"}


@dataclass
class Arrays:
    """Tensors that one process of a group holds: those of `split` along their first dimension, of others all."""

    arrays: Mapping[str, NDArray[Any]]
    rank: int = 0
    size: int = 1
    split: Sequence[str] = ()
    made_for: str = "np"

    @property
    def tensors(self) -> list[Tensor]:
        return [Tensor(name, TYPES[array.dtype.name], array.shape) for name, array in self.arrays.items()]

    def shards(self) -> list[LocalShard]:
        return [self._shard(name) for name in self.arrays]

    def _shard(self, name: str) -> LocalShard:
        whole = LocalShard.whole(self.arrays[name].shape)
        return whole.split(0, self.size, self.rank) if name in self.split else whole

    def read(self, number: int, local: slice) -> Raw:
        name = list(self.arrays)[number]
        array = self.arrays[name].reshape(self.arrays[name].shape or (1,))
        held = array[np.ix_(*[[index for run in runs for index in run] for runs in self._shard(name).held])]
        return np.frombuffer(np.ascontiguousarray(held).reshape(-1)[local].tobytes(), np.uint8)


def target_of(folder: Path, check: Callable[[], None] = lambda: None) -> Target:
    return Target(LocalStore(folder), "model/", check)


def written_by(folder: Path, size: int, split: Sequence[str], arrays: Mapping[str, NDArray[Any]]) -> list[ModelFile]:
    """The files of `arrays` as a group of `size` threads writes them."""
    shared = Shared(size)
    found: list[list[ModelFile]] = []

    def work(rank: int) -> None:
        source = Arrays(arrays, rank, size, split)
        files = weight_files(source.tensors, ModelKind.MODEL, "np")
        found.append(WeightsWriter(source, files, ThreadLink(shared, rank)).write(target_of(folder)))

    run_all([threading.Thread(target=work, args=(rank,)) for rank in range(size)])
    assert len(found) == size
    assert all(files == found[0] for files in found)
    return found[0]


def loaded(folder: Path) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        part = load_file(path)
        assert not found.keys() & part.keys()
        found |= part
    return found


def same(found: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]]) -> bool:
    return found.keys() == expected.keys() and all(
        found[name].dtype == array.dtype and found[name].shape == array.shape and (found[name] == array).all()
        for name, array in expected.items()
    )


def test_one_file_is_read_by_the_library_with_types_shapes_and_scalars(tmp_path: Path) -> None:
    [file] = written_by(tmp_path, 1, (), NUMBERS)
    path = tmp_path / "model" / "model.safetensors"
    assert (file.name, file.bytes) == ("model.safetensors", path.stat().st_size)
    assert same(loaded(tmp_path / "model"), NUMBERS)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_bytes_do_not_depend_on_how_many_processes_hold_the_model(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_files_module, "FILE_BYTES_MAX", 300)
    monkeypatch.setattr(weights_writer, "window_elements", lambda *_: 16)
    alone = written_by(tmp_path / "alone", 1, (), NUMBERS)
    shared = written_by(tmp_path / "shared", size, ("embedding.weight", "head.weight", "norm.mean"), NUMBERS)
    assert [file.name for file in alone] == [f"model-{number:05}-of-00003.safetensors" for number in (1, 2, 3)]
    assert shared == alone
    assert same(loaded(tmp_path / "shared" / "model"), NUMBERS)


def test_no_process_holds_more_than_a_window_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_writer, "window_elements", lambda *_: 200)
    asked: list[int] = []

    class Watched(Arrays):
        def read(self, number: int, local: slice) -> Raw:
            found = super().read(number, local)
            asked.append(found.nbytes)
            return found

    source = Watched({"long": np.arange(10_000, dtype=np.float32), "next": np.arange(50, dtype=np.float16)})
    files = weight_files(source.tensors, ModelKind.MODEL, "np")
    WeightsWriter(source, files, Alone()).write(target_of(tmp_path))
    assert max(asked) <= 800
    assert same(loaded(tmp_path / "model"), source.arrays)


def test_a_model_of_several_files_has_the_index_that_hugging_face_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_files_module, "FILE_BYTES_MAX", 1000)
    tensors = [Tensor(name, "F32", (200,)) for name in "abc"] + [Tensor("wide", "F32", (600,))]
    files = weight_files(tensors, ModelKind.MODEL, "pt")
    names = [f"model-{number:05}-of-00004.safetensors" for number in range(1, 5)]
    assert [file.name for file in files] == names
    index = index_of(files)
    assert index is not None
    assert index[0] == "model.safetensors.index.json"
    assert json.loads(index[1]) == {
        "metadata": {"total_size": 4 * 1200},
        "weight_map": dict(zip(("a", "b", "c", "wide"), names, strict=True)),
    }
    assert [file.name for file in weight_files(tensors, ModelKind.ADAPTER, "pt")] == ["adapter_model.safetensors"]


def test_large_elements_come_first_so_that_each_one_is_aligned() -> None:
    [file] = weight_files([Tensor("a", "BOOL", (3,)), Tensor("b", "F64", (2,))], ModelKind.MODEL, "pt")
    assert [tensor.name for tensor in file.tensors] == ["b", "a"]
    assert len(file.header) % 8 == 0


def test_a_failing_write_leaves_no_file_and_fails_in_all_processes(tmp_path: Path) -> None:
    shared = Shared(2)
    errors: list[BaseException] = []

    def fail(key: str) -> None:
        raise StoreUnavailableError(key, 1, "as the test asked")

    def work(rank: int) -> None:
        source = Arrays(NUMBERS, rank, 2)
        files = weight_files(source.tensors, ModelKind.MODEL, "np")
        target = target_of(tmp_path, (lambda: fail("model")) if rank == 0 else lambda: None)
        try:
            WeightsWriter(source, files, ThreadLink(shared, rank)).write(target)
        except StoreUnavailableError as error:
            errors.append(error)

    run_all([threading.Thread(target=work, args=(rank,)) for rank in range(2)])
    assert len(errors) == 2
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("base_model.model.h.0.attn.lora_A.default.weight", "base_model.model.h.0.attn.lora_A.weight"),
        ("base_model.model.wte.lora_embedding_A.default", "base_model.model.wte.lora_embedding_A"),
        ("base_model.model.score.modules_to_save.default.weight", "base_model.model.score.weight"),
        ("base_model.model.default.lora_B.default.weight", "base_model.model.default.lora_B.weight"),
        ("base_model.model.head.bias", "base_model.model.head.bias"),
    ],
)
def test_an_adapter_has_the_names_that_peft_reads(name: str, stored: str) -> None:
    assert adapter_name(name, "default") == stored


class Saved:
    """As a tokenizer."""

    def save_pretrained(self, folder: str) -> None:
        (Path(folder) / "tokenizer.json").write_text("{}")


@pytest.mark.parametrize(
    ("wishes", "reason"),
    [
        ({"beside": "config.json"}, "FinalModel.beside is of type str; allowed: a list of items"),
        ({"beside": [3]}, r"FinalModel.beside\[0\] is of type int"),
        ({"adapter": ""}, "FinalModel.adapter is empty"),
        ({"evaluate": 3}, "FinalModel.evaluate is of type int; allowed: a function"),
    ],
)
def test_wishes_that_cannot_be_met_are_refused_at_once(wishes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ParametersError, match=reason):
        FinalModel(**wishes)


def test_a_missing_file_is_refused_before_training_and_foreign_weights_when_they_are_found(tmp_path: Path) -> None:
    run = ModelRun(tmp_path, 1)
    with pytest.raises(ParametersError, match=r"names /nowhere/config.json: no such file"):
        run.replica(0, FinalModel(["/nowhere/config.json"]))
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "model.safetensors").touch()
    with pytest.raises(ParametersError, match=r"has model.safetensors: the weights that lie there are Muster's"):
        run.replica(0, FinalModel([tmp_path / "base"]), attempt=2)


class ModelRun:
    """A run whose replicas, threads over a directory, leave a model."""

    def __init__(self, root: Path, replicas: int, rule: OnEarlyFinish | None = OnEarlyFinish.CONTINUE) -> None:
        self.root, self.rounds = root, 3
        self.run = Run(root / "rendezvous", replicas, replicas, rounds=3, on_early_finish=rule, count=COUNT)
        self.results = root / "output"

    def replica(
        self,
        rank: int,
        final_model: FinalModel = FinalModel(),  # noqa: B008 - it is frozen
        *,
        attempt: int = 1,
        faults: Faults | None = None,
        rounds: int = 3,
        before_finish: Callable[[], None] = lambda: None,
    ) -> Rendezvous:
        """Train and leave; returns what the replica left with."""
        results = FaultyStore(LocalStore(self.results), faults or Faults())
        context = replace(self.run.context(), results=results)
        rendezvous = Rendezvous.open(context, rank, attempt, Metrics())
        weights = np.zeros(COUNT, np.float32)
        outer = DiLoCo(rendezvous, {"weights": weights}, final_model=final_model)
        while outer.round < rounds:
            weights -= gradient_of(rank, outer.round + 1, COUNT)
            outer.step(rank + 1)
        before_finish()
        outer.finish()
        return rendezvous

    def together(self, *trains: Callable[[], object]) -> list[BaseException | None]:
        """Run replicas side by side; returns what each has raised."""
        raised: list[BaseException | None] = [None] * len(trains)

        def work(number: int) -> None:
            try:
                trains[number]()
            except BaseException as error:
                raised[number] = error

        run_all([threading.Thread(target=work, args=(number,)) for number in range(len(trains))])
        return raised

    def manifest(self, round_: int = 3) -> ModelManifest:
        path = self.results / f"model-{round_:08d}.json"
        return ModelManifest.from_json(path.read_bytes(), str(path))

    def weights(self) -> bytes:
        return load_file(self.results / "model" / "model.safetensors")["weights"].tobytes()

    def writers(self) -> list[int]:
        folder = self.run.root / "model-writers"
        found = sorted(folder.iterdir()) if folder.exists() else []
        return [json.loads(path.read_text())["rank"] for path in found]


def test_of_replicas_that_end_together_one_writes_the_model_once(tmp_path: Path) -> None:
    run = ModelRun(tmp_path, 3)
    calls: list[int] = []
    finals = [
        FinalModel([Saved()], evaluate=lambda rank=rank: calls.append(rank) or {"loss": 0.25, "broken": float("nan")})
        for rank in range(3)
    ]
    assert run.together(*(lambda rank=rank: run.replica(rank, finals[rank]) for rank in range(3))) == [None] * 3
    manifest = run.manifest()
    assert run.writers() == calls == [manifest.rank]
    assert [file.name for file in manifest.files] == ["model.safetensors", "tokenizer.json"]
    assert run.weights() == run.run.replayed_by_hand()
    evaluation = (run.results / "model-00000003-evaluation.json").read_bytes()
    assert ModelEvaluation.from_json(evaluation, "it").metrics == {"loss": 0.25}


def test_of_replicas_that_all_see_the_end_the_first_in_the_list_writes(tmp_path: Path) -> None:
    # Replicas of an older version do not report their finish, so each of them looks.
    run = ModelRun(tmp_path, 2, None)
    ended: list[int] = []

    def hold(key: str) -> None:
        if key == "model/model.safetensors":
            wait_until("the other replica's end", lambda: ended)

    def replica(rank: int) -> None:
        run.replica(rank, faults=Faults(before_create=hold))
        ended.append(rank)

    assert run.together(lambda: replica(0), lambda: replica(1)) == [None, None]
    assert run.writers() == [ended[1]]


def test_a_replica_that_finishes_early_leaves_the_model_to_those_that_train_on(tmp_path: Path) -> None:
    run = ModelRun(tmp_path, 3)
    raised = run.together(lambda: run.replica(0), lambda: run.replica(1), lambda: run.replica(2, rounds=1))
    assert raised == [None] * 3
    assert 2 not in run.writers()
    assert [path.name for path in run.results.glob("*.json")] == ["model-00000003.json"]


@pytest.mark.parametrize(
    "dies_at", ["model/model.safetensors", "model-00000003.json", "model-00000003-evaluation.json"]
)
def test_a_writer_that_dies_is_followed_by_its_rerun(tmp_path: Path, dies_at: str) -> None:
    run = ModelRun(tmp_path, 2)
    final = FinalModel(evaluate=lambda: {"loss": 1.0})

    def kill(key: str) -> None:
        if key == dies_at:
            raise Killed(key)

    deadly = Faults(before_create=kill)
    raised = run.together(*(lambda rank=rank: run.replica(rank, final, faults=deadly) for rank in range(2)))
    [victim] = [rank for rank, error in enumerate(raised) if error is not None]
    assert isinstance(raised[victim], Killed)
    assert not (run.results / dies_at).exists()
    run.replica(victim, final, attempt=2)
    assert run.writers() == [victim, victim]
    assert run.weights() == run.run.replayed_by_hand()
    assert (run.results / "model-00000003-evaluation.json").exists()


def test_a_superseded_writer_completes_no_file(tmp_path: Path) -> None:
    run = ModelRun(tmp_path, 1)
    later: list[Rendezvous] = []

    def supersede(key: str) -> None:
        if key == "model/model.safetensors" and not later:
            later.append(run.replica(0, attempt=2))

    with pytest.raises(FencedError):
        run.replica(0, faults=Faults(before_create=supersede))
    assert later
    assert run.writers() == [0, 0]
    assert run.weights() == run.run.replayed_by_hand()


def test_a_member_that_is_gone_for_good_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing_only_in(monkeypatch, 2)
    run = ModelRun(tmp_path, 3)
    run.run.min_participants = 2

    def die() -> None:
        raise Killed

    raised = run.together(
        lambda: run.replica(0), lambda: run.replica(1), lambda: run.replica(2, rounds=1, before_finish=die)
    )
    assert raised[:2] == [None, None]
    assert run.manifest().round == 3
    assert 2 not in run.writers()


def test_a_rerun_that_comes_after_the_model_writes_nothing(tmp_path: Path) -> None:
    run = ModelRun(tmp_path, 1)
    run.replica(0)
    before = (run.results / "model" / "model.safetensors").stat().st_mtime_ns
    run.replica(0, attempt=2)
    assert run.writers() == [0]
    assert (run.results / "model" / "model.safetensors").stat().st_mtime_ns == before


def test_a_run_of_an_older_version_has_a_model_although_its_replicas_do_not_report_their_finish(tmp_path: Path) -> None:
    run = ModelRun(tmp_path, 2, None)
    assert run.together(lambda: run.replica(0), lambda: run.replica(1)) == [None, None]
    assert run.manifest().rank == run.writers()[0]
    assert run.weights() == run.run.replayed_by_hand()


@pytest.mark.parametrize(
    ("evaluate", "reason"),
    [
        (lambda: 1 / 0, "evaluate failed: ZeroDivisionError: division by zero"),
        (lambda: {"a b": 1.0}, "evaluate returned the name 'a b'; allowed: 31 metrics"),
        (lambda: dict.fromkeys(map(str, range(40)), 1.0), "evaluate returned the name '0'"),
        (lambda: {f"m{number}": 1.0 for number in range(40)}, "evaluate returned 40 metrics"),
    ],
)
def test_an_evaluation_that_fails_is_the_trainers_failure_and_the_model_stays(
    tmp_path: Path, evaluate: Callable[[], Any], reason: str
) -> None:
    run = ModelRun(tmp_path, 1)
    with pytest.raises(TrainerError, match=reason):
        run.replica(0, FinalModel(evaluate=evaluate))
    assert run.weights() == run.run.replayed_by_hand()
    assert run.manifest().kind is ModelKind.MODEL


def test_a_step_after_the_end_is_refused(tmp_path: Path) -> None:
    run = ModelRun(tmp_path, 1)
    rendezvous = run.replica(0)
    assert rendezvous.has_left
    results = replace(run.run.context(), results=LocalStore(run.results))
    again = Rendezvous.open(results, 0, 2, Metrics())
    outer = DiLoCo(again, {"weights": np.zeros(COUNT, np.float32)})
    outer.finish()
    assert outer.finish() is None
    with pytest.raises(ParametersError, match=r"finish\(\) has ended this replica's part in the run"):
        outer.step()


def test_a_claim_of_the_list_of_writers_is_in_the_rendezvous(tmp_path: Path) -> None:
    run = ModelRun(tmp_path, 1)
    run.replica(0)
    assert (run.run.root / keys.model_writer(1)).exists()
