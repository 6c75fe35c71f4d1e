"""The families of recipes: what runs each, and which fields of a spec it fills in. Pure."""
