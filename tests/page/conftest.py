"""What every test in a browser shares."""

from playwright.sync_api import expect

# An upper bound: a test continues as soon as the expected state is there. A busy machine may need long.
expect.set_options(timeout=60_000)
