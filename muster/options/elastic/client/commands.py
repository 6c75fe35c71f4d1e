"""The command `muster scale`."""

from muster.client.cli.lazy_group import CommandOffer, CommandRow

OFFER = CommandOffer(
    {
        "scale": CommandRow(
            "muster.options.elastic.client.scale_command:scale",
            "Change how many replicas an elastic run has, while it trains.",
        ),
    },
    after="cancel",
)
