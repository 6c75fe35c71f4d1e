"""The outposts of a stack: their settings, what the stack has for them, and a stack of its own for each."""
