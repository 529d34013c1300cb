"""`make cost`: the instructions that the broker executes per request, compared with a committed baseline."""
