"""What `muster init` writes for torchft."""

from muster.client.starter.frameworks import LOOP, Starter, Starters

OFFER = Starters(
    {"torchft": Starter("torchft's DiLoCo", LOOP, ("torchft-nightly==2026.10.26",))},
    package="muster.options.torchft.client",
)
