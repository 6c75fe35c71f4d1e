"""The documents of a run, from plan to result, and the pure rules that belong to them."""
