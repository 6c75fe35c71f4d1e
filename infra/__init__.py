"""The stack that Muster deploys; stack.py composes it."""
