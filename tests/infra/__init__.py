"""What the template promises."""
