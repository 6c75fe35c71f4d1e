"""The places of a stack as the commands see them."""
