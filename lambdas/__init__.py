"""One short handler per function: parse the event, call muster.control, return."""
