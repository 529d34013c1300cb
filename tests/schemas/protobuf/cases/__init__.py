"""Pairs of schemas with all their differences: the compatibility rules as a table."""
