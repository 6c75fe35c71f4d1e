"""What training jobs run in tests: trainers, and `programs`, the folder that jobs of the embedded cloud get as code."""
