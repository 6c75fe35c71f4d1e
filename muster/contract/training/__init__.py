"""The parts of CreateTrainingJob that an independent replica can use, one file per part.

Fields have CreateTrainingJob's own names in snake case, except for the few that the spec abbreviates (hints.py has
both names). Each part has its limits, the rules between its fields, and its part of the request.
"""
