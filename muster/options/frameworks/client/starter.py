"""What `muster init` writes for the frameworks."""

from muster.client.starter.frameworks import Starter, Starters

OFFER = Starters(
    {
        "huggingface": Starter(
            "the Trainer of transformers",
            {"max_steps": 200, "steps_per_round": 20},
            ("accelerate==1.15.0", "transformers==5.23.0"),
        ),
        "lightning": Starter("Lightning's Trainer", {"max_steps": 1_000, "steps_per_round": 50}, ("lightning==2.6.6",)),
    },
    package="muster.options.frameworks.client",
)
