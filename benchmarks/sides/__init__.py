"""The sides of a benchmark as processes of their own, and what they hold."""
