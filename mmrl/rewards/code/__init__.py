"""The reward `code`: programs run against tests in a sandbox."""
