"""From a spec to an execution: dry run, estimate, source archive, name."""
