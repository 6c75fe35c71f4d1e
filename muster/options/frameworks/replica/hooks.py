"""How the Trainers of Hugging Face and Lightning get Muster's callback in a program that knows nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.context import Context
from muster.replica.entry.hooked_program import Hooks, Library
from muster.replica.model.final_model import FinalModel, SavesPretrained


def _huggingface(
    trainer: Any, make: Callable[..., None], keywords: dict[str, Any], context: Context, algorithm: Algorithm
) -> None:
    from muster.options.frameworks.replica.huggingface_callback import DiLoCoCallback  # noqa: PLC0415

    make(**keywords)
    # Not before: the Trainer may make its model itself (`model_init`).
    wishes = _model_of(trainer.model, getattr(trainer, "processing_class", None))
    trainer.add_callback(DiLoCoCallback(context, algorithm, final_model=wishes))


def _lightning(
    _: Any, make: Callable[..., None], keywords: dict[str, Any], context: Context, algorithm: Algorithm
) -> None:
    from muster.options.frameworks.replica.lightning_callback import DiLoCoCallback  # noqa: PLC0415

    # All parameters of this Trainer are keywords.
    given = keywords.pop("callbacks", None) or []
    callbacks = [*(given if isinstance(given, list) else [given]), DiLoCoCallback(context, algorithm)]
    make(callbacks=callbacks, **keywords)


def _model_of(model: Any, processing: object) -> FinalModel:
    """What the run leaves: of a PEFT model its adapter, else the model with its configuration and its tokenizer."""
    adapters = getattr(model, "peft_config", None)
    if isinstance(adapters, Mapping) and adapters:
        active = getattr(model, "active_adapter", None)
        name = active if isinstance(active, str) and active in adapters else next(iter(adapters))
        return FinalModel([adapters[name]], adapter=name)
    beside = (getattr(model, "config", None), processing)
    return FinalModel([item for item in beside if isinstance(item, SavesPretrained)])


OFFER = Hooks(
    {
        "huggingface": Library("transformers", "transformers", _huggingface),
        "lightning": Library("lightning.pytorch", "lightning", _lightning),
    }
)
