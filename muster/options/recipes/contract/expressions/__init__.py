"""What a text of a recipe refers to: placeholders, and interpolations by a grammar of their own. Pure."""
