"""Muster as a scheduler of TorchX: `torchx run -s muster …`. TorchX itself is the user's to install."""
