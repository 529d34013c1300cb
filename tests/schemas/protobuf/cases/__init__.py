"""Pairs of schemas with everything that differs between them: the table of the rules of compatibility, as data."""
