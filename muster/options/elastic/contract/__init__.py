"""What the runtimes of elastic runs share: the document of seats."""
