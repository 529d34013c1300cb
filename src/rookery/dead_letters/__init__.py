"""Dead letters: records that could not be processed, stored with the reason, to be inspected and sent again."""
