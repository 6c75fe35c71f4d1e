"""The model that replicas leave: what is written, by whom, and that the safetensors library reads it."""

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from muster.contract.run.model import ModelEvaluation, ModelFile, ModelKind, ModelManifest
from muster.contract.run.replica_variables import ENV_RESOLVED
from muster.contract.spec.policies import OnEarlyFinish
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.model import safetensors_layout, weights_writer
from muster.replica.model.final_model import FinalModel, adapter_name
from muster.replica.model.safetensors_layout import Tensor, index_of, weight_files
from muster.replica.model.weights_writer import ModelDestination, Raw, WeightsWriter
from muster.replica.parts.local_shard import LocalShard
from muster.replica.rendezvous import Outside, Rendezvous
from muster.replica.replica_errors import FencedError, ParametersError, TrainerError
from muster.replica.store.local_store import LocalStore
from muster.replica.store.transport import StoreUnavailableError
from tests.support.groups import Shared, ThreadLink
from tests.support.peers import Faults, FaultyStore, Killed, Run, gradient_of, missing_only_in, run_all
from tests.support.waiting import wait_until

COUNT = 300
WINDOW = 16  # elements

NUMBERS: dict[str, NDArray[Any]] = {
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
    rank: int
    size: int
    split: Sequence[str] = ()
    made_for: str = "np"
    most: int = 0  # bytes that were asked for at once

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
        found = np.frombuffer(np.ascontiguousarray(held).reshape(-1)[local].tobytes(), np.uint8)
        self.most = max(self.most, found.nbytes)
        return found


def target_of(folder: Path, check: Callable[[], None] = lambda: None) -> ModelDestination:
    return ModelDestination(LocalStore(folder), "model/", check)


def written_by(folder: Path, size: int, split: Sequence[str] = ()) -> list[ModelFile]:
    """The files of `NUMBERS` as a group of `size` threads writes them."""
    shared = Shared(size)
    found: list[list[ModelFile]] = []

    def work(rank: int) -> None:
        source = Arrays(NUMBERS, rank, size, split)
        files = weight_files(source.tensors, ModelKind.MODEL, "np")
        found.append(WeightsWriter(source, files, ThreadLink(shared, rank)).write(target_of(folder)))
        assert source.most <= 8 * WINDOW

    run_all([threading.Thread(target=work, args=(rank,)) for rank in range(size)])
    assert found == [found[0]] * size
    return found[0]


def check_numbers(folder: Path) -> None:
    """The files of a folder hold `NUMBERS`, each once."""
    parts = [load_file(path) for path in folder.glob("*.safetensors")]
    found = {name: array for part in parts for name, array in part.items()}
    assert sum(map(len, parts)) == len(found)
    assert found.keys() == NUMBERS.keys()
    for name, array in NUMBERS.items():
        assert found[name].dtype == array.dtype, name
        np.testing.assert_array_equal(found[name], array, strict=True, err_msg=name)


def test_the_bytes_do_not_depend_on_the_number_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safetensors_layout, "FILE_BYTES_MAX", 300)
    monkeypatch.setattr(weights_writer, "window_elements", lambda *_: WINDOW)
    alone = written_by(tmp_path / "alone", 1)
    assert [file.name for file in alone] == [f"model-{number:05}-of-00003.safetensors" for number in (1, 2, 3)]
    for size in (2, 3, 4):
        folder = tmp_path / f"{size}"
        assert written_by(folder, size, ("embedding.weight", "head.weight", "norm.mean")) == alone
        check_numbers(folder / "model")


def test_a_model_of_several_files_has_the_index_that_hugging_face_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safetensors_layout, "FILE_BYTES_MAX", 1000)
    tensors = [Tensor(name, "F32", (200,)) for name in "abc"] + [Tensor("wide", "F32", (600,))]
    files = weight_files(tensors, ModelKind.MODEL, "pt")
    names = [f"model-{number:05}-of-00004.safetensors" for number in range(1, 5)]
    assert [file.name for file in files] == names
    index = index_of(files)
    assert index is not None
    weights = dict(zip(("a", "b", "c", "wide"), names, strict=True))
    assert index[0] == "model.safetensors.index.json"
    assert json.loads(index[1]) == {"metadata": {"total_size": 4 * 1200}, "weight_map": weights}
    assert [file.name for file in weight_files(tensors, ModelKind.ADAPTER, "pt")] == ["adapter_model.safetensors"]
    # Large elements come first, so that each one is aligned.
    [file] = weight_files([Tensor("a", "BOOL", (3,)), Tensor("b", "F64", (2,))], ModelKind.MODEL, "pt")
    assert ([tensor.name for tensor in file.tensors], len(file.header) % 8) == (["b", "a"], 0)


def test_a_failing_write_leaves_no_file_and_fails_in_all_processes(tmp_path: Path) -> None:
    shared = Shared(2)
    errors: list[BaseException] = []
    failure = StoreUnavailableError("model", 1, "as the test asked")

    def fail() -> None:
        raise failure

    def work(rank: int) -> None:
        source = Arrays(NUMBERS, rank, 2)
        files = weight_files(source.tensors, ModelKind.MODEL, "np")
        try:
            WeightsWriter(source, files, ThreadLink(shared, rank)).write(
                target_of(tmp_path, (lambda: None) if rank else fail)
            )
        except StoreUnavailableError as error:
            errors.append(error)

    run_all([threading.Thread(target=work, args=(rank,)) for rank in range(2)])
    assert len(errors) == 2
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_an_adapter_has_the_names_that_peft_reads() -> None:
    names = {
        "h.0.attn.lora_A.default.weight": "h.0.attn.lora_A.weight",
        "wte.lora_embedding_A.default": "wte.lora_embedding_A",
        "score.modules_to_save.default.weight": "score.weight",
        "default.lora_B.default.weight": "default.lora_B.weight",
        "head.bias": "head.bias",
    }
    prefix = "base_model.model."
    assert {name: adapter_name(prefix + name, "default") for name in names} == {
        name: prefix + stored for name, stored in names.items()
    }


class Saved:
    """As a tokenizer."""

    def save_pretrained(self, folder: str) -> None:
        (Path(folder) / "tokenizer.json").write_text("{}")


def test_wishes_that_cannot_be_met_are_refused_before_training(tmp_path: Path) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"beside": "config.json"}, "FinalModel.beside is of type str; allowed: a list"),
        ({"beside": [3]}, r"FinalModel.beside\[0\] is of type int"),
        ({"adapter": ""}, "FinalModel.adapter is empty"),
        ({"evaluate": 3}, "FinalModel.evaluate is of type int; allowed: a function"),
    ]
    for wishes, reason in refused:
        with pytest.raises(ParametersError, match=reason):
            FinalModel(**wishes)
    run = ModelRun(tmp_path, 1)
    with pytest.raises(ParametersError, match=r"names /nowhere/config.json: no such file"):
        run.replica(0, FinalModel(["/nowhere/config.json"]))
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "model.safetensors").touch()
    with pytest.raises(ParametersError, match=r"has model.safetensors: the weights"):
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
        rendezvous = self.run.open(rank, attempt, Outside(results=results))
        weights = np.zeros(COUNT, np.float32)
        outer = DiLoCo(rendezvous, {"weights": weights}, final_model=final_model)
        while outer.round < rounds:
            weights -= gradient_of(rank, outer.round + 1, COUNT)
            outer.step(rank + 1)
        before_finish()
        outer.finish()
        return rendezvous

    def together(self, *options: dict[str, Any]) -> list[BaseException | None]:
        """Run replicas with these options of `replica` side by side; returns what each has raised."""
        with ThreadPoolExecutor(len(options)) as pool:
            ends = [pool.submit(self.replica, rank, **given) for rank, given in enumerate(options)]
        return [end.exception() for end in ends]

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
    assert run.together(*({"final_model": final} for final in finals)) == [None] * 3
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

    run_all([threading.Thread(target=replica, args=(rank,)) for rank in range(2)])
    assert run.writers() == [ended[1]] == [run.manifest().rank]
    assert run.weights() == run.run.replayed_by_hand()


def test_a_replica_that_finishes_early_leaves_the_model_to_those_that_train_on(tmp_path: Path) -> None:
    run = ModelRun(tmp_path, 3)
    assert run.together({}, {}, {"rounds": 1}) == [None] * 3
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

    raised = run.together(*[{"final_model": final, "faults": Faults(before_create=kill)}] * 2)
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

    assert run.together({}, {}, {"rounds": 1, "before_finish": die})[:2] == [None, None]
    assert run.manifest().round == 3
    assert 2 not in run.writers()


def test_an_evaluation_that_fails_is_the_trainers_failure_and_the_model_stays(tmp_path: Path) -> None:
    failures: list[tuple[Callable[[], Any], str]] = [
        (lambda: 1 / 0, "evaluate failed: ZeroDivisionError: division by zero"),
        (lambda: {"a b": 1.0}, "evaluate returned the name 'a b'; allowed: 31 metrics"),
        (lambda: dict.fromkeys(map(str, range(40)), 1.0), "evaluate returned the name '0'"),
        (lambda: {f"m{number}": 1.0 for number in range(40)}, "evaluate returned 40 metrics"),
    ]
    for number, (evaluate, reason) in enumerate(failures):
        run = ModelRun(tmp_path / f"{number}", 1)
        with pytest.raises(TrainerError, match=reason):
            run.replica(0, FinalModel(evaluate=evaluate))
        assert run.weights() == run.run.replayed_by_hand()
        assert run.manifest().kind is ModelKind.MODEL


def test_the_traceback_of_an_evaluation_that_fails_shows_no_secret_that_the_container_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"TRACKING_KEY": "key-0123456789", ENV_RESOLVED: "TRACKING_KEY"}.items():
        monkeypatch.setenv(name, value)

    def evaluate() -> dict[str, float]:
        message = f"refused: {os.environ['TRACKING_KEY']}"
        raise ValueError(message)

    with pytest.raises(TrainerError):
        ModelRun(tmp_path, 1).replica(0, FinalModel(evaluate=evaluate))
    assert "\nValueError: refused: (TRACKING_KEY, not shown)\n" in capsys.readouterr().err


def test_a_rerun_that_comes_after_the_model_writes_nothing_and_makes_no_step(tmp_path: Path) -> None:
    run = ModelRun(tmp_path, 1)
    assert run.replica(0).departure.has_left
    file = run.results / "model" / "model.safetensors"
    before = file.stat().st_mtime_ns
    run.replica(0, attempt=2)
    assert (run.writers(), file.stat().st_mtime_ns) == ([0], before)
    third = run.run.open(attempt=3, outside=Outside(results=LocalStore(run.results)))
    outer = DiLoCo(third, {"weights": np.zeros(COUNT, np.float32)})
    outer.finish()
    assert outer.finish() is None
    with pytest.raises(ParametersError, match=r"finish\(\) has ended"):
        outer.step()
