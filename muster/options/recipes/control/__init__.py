"""What *plan* does with a recipe."""
