"""The embedded cloud with several regions and accounts: an endpoint for each place, borders and links between them."""
