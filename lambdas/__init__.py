"""One short handler per function: parse the event, call muster.control, return."""

import gc
import os

# A cold start makes hundreds of thousands of objects that stay, and the collector would walk them again and again: an
# eighth of its CPU time. `imported()`, the last line of every handler, switches it on again.
gc.disable()

# Pydantic would look for plugins in every installed package when it builds its first model.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
