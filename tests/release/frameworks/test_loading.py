"""The commands of docs/model.md that load a run's model are run, on a small model."""

import re
from contextlib import chdir
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from muster.torch import Algorithm, DiLoCo, FinalModel
from tests.support.contexts import context_of, results_of
from tests.support.peers import Run

DOCS = Path(__file__).resolve().parents[3] / "docs"
WORDS = {"<unk>": 0, "a": 1, "b": 2}


def documented(heading: str) -> list[str]:
    """The Python commands below a heading of docs/model.md."""
    page = (DOCS / "model.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def trained(folder: Path, model: torch.nn.Module, final_model: FinalModel) -> dict[str, torch.Tensor]:
    """Train a model for one round, and leave it in `folder`/my-run-model; returns what is to be loaded."""
    run = Run(folder / "run", replicas=1, min_participants=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    outer = DiLoCo(context_of(run).rendezvous, model, optimizer, Algorithm(), final_model=final_model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    outer.step()
    outer.finish()
    (results_of(run) / "model").rename(folder / "my-run-model")
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def loaded(commands: str, folder: Path, **given: Any) -> Any:
    """What the commands leave in their variables; they find the model in `folder`."""
    with chdir(folder):
        exec(commands, given)  # noqa: S102 - our own documentation
    return given


def test_the_models_load_as_documented(tmp_path: Path) -> None:
    with_transformers, with_torch = documented("Load it")

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=len(WORDS), tie_word_embeddings=True, **sizes)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(WORDS, unk_token="<unk>")))
    expected = trained(tmp_path / "transformers", LlamaForCausalLM(config), FinalModel([config, tokenizer]))
    found = loaded(with_transformers, tmp_path / "transformers")
    state = found["model"].state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in state.items())
    assert found["tokenizer"]("b")["input_ids"] == [WORDS["b"]]

    def make() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5))

    expected = trained(tmp_path / "torch", make(), FinalModel())
    found = loaded(with_torch, tmp_path / "torch", MyModel=make)
    assert all(torch.equal(value, expected[name]) for name, value in found["model"].state_dict().items())
