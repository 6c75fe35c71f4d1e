"""How long a round takes, and what it leaves of the time: pure functions of a run's size, links and algorithm."""
