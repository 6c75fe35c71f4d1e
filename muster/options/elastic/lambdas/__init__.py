"""The handler of the function that scales runs: a parse and a call."""
