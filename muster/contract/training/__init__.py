"""What a training job can be: the parts of CreateTrainingJob that an independent replica can use, one file per part.

Fields have CreateTrainingJob's own names in snake case, except for the few that the spec abbreviates (hints.py has
both names). Each part knows its limits, how its fields must agree, and its piece of the request.
"""
