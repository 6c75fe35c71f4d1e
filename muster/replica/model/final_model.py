"""What a trainer wants of the model that its run leaves: files beside the weights, an adapter alone, an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, runtime_checkable

from muster.contract.run.model import ModelKind
from muster.replica.model.safetensors_layout import is_weights
from muster.replica.replica_errors import ParametersError


@runtime_checkable
class SavesPretrained(Protocol):
    """An object that writes its own files: Hugging Face's configurations, tokenizers and processors do."""

    def save_pretrained(self, save_directory: str, /) -> object:
        """Write the files into a folder."""


Beside = str | Path | SavesPretrained
"""Files of the model beside its weights: of a file, of a folder, or of an object with `save_pretrained`."""

Evaluate = Callable[[], Mapping[str, float]]
"""Measures the model and returns the metrics by name: at most 32, finite."""

_ALLOWED = "a path, or an object with save_pretrained() such as model.config or a tokenizer"


@dataclass(frozen=True)
class FinalModel:
    """What a run leaves as its model. One replica writes it, once per run, when the last replicas have finished.

        FinalModel([model.config, tokenizer], evaluate=lambda: {"loss": held_out_loss(model)})
        FinalModel([model.peft_config["default"]], adapter="default")      # of a PEFT model

    Attributes:
        beside: what lies beside the weights: files, the content of folders, and what objects such as `model.config`
            and a tokenizer write with `save_pretrained`. Read when the model is written.
        adapter: write the trained parameters alone, under the names that PEFT gives to the adapter of this name; None:
            write the whole model.
        evaluate: called when the model is written, in all processes of the replica that has written it, with the
            global parameters in the model. What it returns in the first process belongs to the run's result. If it
            fails, so does the replica, and the model stays.
    """

    beside: Sequence[Beside] = field(default=())
    adapter: str | None = None
    evaluate: Evaluate | None = None

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise ParametersError("; ".join(problems) + ".")

    @property
    def kind(self) -> ModelKind:
        """What the weights are."""
        return ModelKind.MODEL if self.adapter is None else ModelKind.ADAPTER

    def _problems(self) -> Iterator[str]:
        if isinstance(self.beside, str | Path) or not isinstance(self.beside, Sequence):
            found = type(self.beside).__name__
            yield f"FinalModel.beside is of type {found}; allowed: a list of items, each {_ALLOWED}"
            return
        for number, item in enumerate(self.beside):
            name = f"FinalModel.beside[{number}]"
            if hasattr(item, "named_parameters"):
                yield f"{name} is a model, whose weights Muster writes; allowed: {_ALLOWED}"
            elif not isinstance(item, str | Path | SavesPretrained):
                yield f"{name} is of type {type(item).__name__}; allowed: {_ALLOWED}"
        if self.adapter == "":
            yield "FinalModel.adapter is empty; allowed: the adapter's name, such as 'default', or None"
        if self.evaluate is not None and not callable(self.evaluate):
            yield f"FinalModel.evaluate is of type {type(self.evaluate).__name__}; allowed: a function"

    def check_paths(self) -> None:
        """Return if the files and folders are there.

        Raises:
            ParametersError: lists those that are not.
        """
        missing = [str(item) for item in self.beside if isinstance(item, str | Path) and not Path(item).exists()]
        if missing:
            message = f"FinalModel.beside names {', '.join(missing)}: no such file or folder."
            raise ParametersError(message)

    @contextmanager
    def files(self) -> Iterator[dict[str, Path]]:
        """The files beside the weights by their names below the model's folder, of each name the first one.

        Raises:
            ParametersError: one cannot be read, or has the name of weights.
        """
        with TemporaryDirectory(prefix="muster-model-") as folder:
            found: dict[str, Path] = {}
            for number, item in enumerate(self.beside):
                if isinstance(item, str | Path):
                    path = Path(item)
                else:
                    path = Path(folder) / str(number)
                    path.mkdir()
                    item.save_pretrained(str(path))
                for name, file in _listed(path):
                    found.setdefault(name, file)
            weights = sorted(name for name in found if is_weights(name))
            if weights:
                message = f"FinalModel.beside has {', '.join(weights)}: the weights that lie there are Muster's."
                raise ParametersError(message)
            yield found


def _listed(path: Path) -> Iterator[tuple[str, Path]]:
    if path.is_file():
        yield path.name, path
    elif path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.is_file():
                yield file.relative_to(path).as_posix(), file
    else:
        message = f"FinalModel.beside names {path}: no such file or folder."
        raise ParametersError(message)


NO_WISHES = FinalModel()


def adapter_name(name: str, adapter: str) -> str:
    """The name of a parameter of a PEFT model in the file of its adapter: without the adapter's own name.

    `q_proj.lora_A.default.weight` is `q_proj.lora_A.weight` there, and a layer that is trained as a whole
    (`score.modules_to_save.default.weight`) is `score.weight`.
    """
    parts = name.split(".")
    for number in range(len(parts) - 1, 0, -1):
        if parts[number] == adapter:
            whole = parts[number - 1] == "modules_to_save"
            return ".".join([*parts[: number - whole], *parts[number + 1 :]])
    return name
