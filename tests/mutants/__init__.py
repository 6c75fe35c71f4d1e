"""Code taken out of the product, one piece at a time, and the test that fails without it."""
