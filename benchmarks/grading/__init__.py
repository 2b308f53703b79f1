"""The two sides of the grading benchmark, each a process of its own."""
