"""The documentation, and what writes the parts of it that follow from the code."""
