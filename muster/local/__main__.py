"""`python -m muster.local`: the commands of `muster local` without the rest."""

from muster.local.cli import app

app(prog_name="python -m muster.local")
