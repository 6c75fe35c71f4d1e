"""The static gate of `make check`: what other people's checkers find in the stack and in the code."""
