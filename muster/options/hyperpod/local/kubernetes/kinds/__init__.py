"""The kinds of objects that the embedded API knows, with the rules of each."""
