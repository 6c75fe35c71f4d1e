"""The command `muster recipe`."""

from muster.client.cli.lazy_group import CommandOffer, CommandRow

OFFER = CommandOffer(
    {
        "recipe": CommandRow(
            "muster.options.recipes.client.recipe_commands:app",
            "List, show, resolve, compare and check recipes. Needs no stack, and AWS only for S3 and SageMaker Hub.",
        )
    },
    after="plan",
)
