"""What a recipe completes in its spec, and a spec in its recipe: rules by what runs the recipe. Pure."""
