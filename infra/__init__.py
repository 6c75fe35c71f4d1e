"""The stack that Muster deploys: one construct per file; stack.py composes them."""
