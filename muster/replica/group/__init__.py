"""A replica as a process group: its processes on one or several instances, started and ended together."""
