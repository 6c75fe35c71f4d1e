"""Handwritten digits, trained by several replicas together. NumPy only; the data come with scikit-learn."""
