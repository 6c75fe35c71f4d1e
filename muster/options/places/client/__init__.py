"""The places of a stack as the commands see them: what a plan says of them, their checks, the logs of jobs there."""
