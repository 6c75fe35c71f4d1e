"""SageMaker recipes: what a spec says about one, how it is resolved, and the ordinary spec that comes of it. Pure."""
