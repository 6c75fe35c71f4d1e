"""Hugging Face's `Trainer` fine-tunes adapters (LoRA): `examples.frameworks.huggingface_lora:train`.

Only the adapters are exchanged. Each replica trains on its own part of the data.
"""

from __future__ import annotations

from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

from examples.frameworks.sequences import LENGTH, VOCABULARY, sequences
from muster.huggingface import Algorithm, Context, DiLoCoCallback, FinalModel


def train(
    context: Context,
    *,
    base: str = "",
    revision: str = "main",
    max_steps: int = 60,
    sync_every: int = 10,
    per_device_batch: int = 4,
) -> None:
    """Fine-tune `base`, a model's name or folder; by default a small untrained one.

    Args:
        context: given by Muster.
        revision: of the base. Name a commit: all replicas must load the same weights, reruns included.
        max_steps: optimizer steps of each replica, as in TrainingArguments.
        sync_every: optimizer steps between two exchanges.
        per_device_batch: examples of a batch, as in TrainingArguments.
    """
    set_seed(0)  # frozen weights are not exchanged: all replicas must begin with the same ones
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base, revision=revision) if base else _small(),
        LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=32, target_modules="all-linear"),
    )
    adapter = FinalModel([model.peft_config["default"]], adapter="default")  # what the run leaves
    arguments = TrainingArguments(
        output_dir=str(context.output_dir),
        max_steps=max_steps,
        per_device_train_batch_size=per_device_batch,
        gradient_accumulation_steps=2,
        learning_rate=1e-2,
        logging_steps=sync_every,
        save_strategy="no",  # Muster saves what a rerun needs
        report_to="none",
        disable_tqdm=True,
        include_num_input_tokens_seen="all",  # the weight of each replica in the mean
    )
    data = [{"input_ids": row, "labels": row} for row in sequences(512, seed=context.rank)]
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=data,
        callbacks=[DiLoCoCallback(context, Algorithm(sync_every=sync_every, momentum=0.5), final_model=adapter)],
    )
    trainer.train()


def _small() -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=LENGTH,
        )
    )
