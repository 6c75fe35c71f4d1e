"""The client's calls to AWS, and AWS's errors in Muster's terms."""
