"""The command `muster verify`."""

from muster.client.cli.lazy_group import CommandOffer, CommandRow

OFFER = CommandOffer(
    {
        "verify": CommandRow(
            "muster.options.verify.client.verify_command:verify",
            "Check the stack, the account and what Muster assumes of AWS, with a run of two small replicas.",
        ),
    },
    after="policy",
)
