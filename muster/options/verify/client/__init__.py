"""`muster verify`: the first-day proof. Facts are gathered from AWS; pure functions judge them."""
