"""Writing topics, exactly once: tasks leave transactions open, and the driver decides about them."""
