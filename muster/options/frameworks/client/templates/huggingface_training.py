"""What every replica runs: `muster launch run.yaml` calls `train`. Replace the model and the data with your own."""

from pathlib import Path

from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

from muster.huggingface import Algorithm, Context, DiLoCoCallback

LENGTH = 64


def train(context: Context, *, max_steps: int = 200, steps_per_round: int = 20, learning_rate: float = 1e-3) -> None:
    """Train a small language model on bytes. All replicas have the same parameters after every round."""
    set_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=256,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=LENGTH,
        )
    )
    arguments = TrainingArguments(
        output_dir=str(context.output_dir),
        max_steps=max_steps,
        per_device_train_batch_size=8,
        learning_rate=learning_rate,
        logging_steps=steps_per_round,
        save_strategy="no",  # Muster saves what a restarted replica needs
        report_to="none",
        disable_tqdm=True,
        include_num_input_tokens_seen="all",  # the weight of this replica in the mean
    )
    Trainer(
        model=model,
        args=arguments,
        train_dataset=load(context.input_dir / "train", context.rank, context.world_size),
        callbacks=[DiLoCoCallback(context, Algorithm(sync_every=steps_per_round))],
    ).train()


def load(folder: Path, rank: int, world_size: int) -> list[dict[str, list[int]]]:
    """This replica's part of the data: text files, as bytes; without a channel, a sentence again and again."""
    if folder.is_dir():
        text = b"\n".join(path.read_bytes() for path in sorted(folder.glob("*.txt")))
    else:
        text = b"Replicas train apart and meet in rounds. " * 400
    rows = [list(text[start : start + LENGTH]) for start in range(0, len(text) - LENGTH + 1, LENGTH)]
    return [{"input_ids": row, "labels": row} for row in rows[rank::world_size]]
