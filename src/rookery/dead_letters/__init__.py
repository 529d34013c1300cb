"""Dead letters: records that could not be processed, kept with the reason, looked at and sent again."""
