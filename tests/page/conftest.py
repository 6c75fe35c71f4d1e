"""What every test in a browser shares."""

from playwright.sync_api import expect

# Nobody waits for its end where what is expected comes; a busy machine may take its time.
expect.set_options(timeout=60_000)
