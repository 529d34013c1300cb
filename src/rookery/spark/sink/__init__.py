"""Writes topics exactly once: tasks leave their transactions open, and the driver commits or aborts them."""
