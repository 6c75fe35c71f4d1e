"""A replica whose inner group has another number of processes than the one that has saved its state."""
