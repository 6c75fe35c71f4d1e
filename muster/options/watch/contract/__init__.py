"""The rules, as a spec gives them."""
