"""The command line: `muster local` and `muster faults`."""
