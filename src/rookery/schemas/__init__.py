"""Schemas of messages in three formats: parsing, canonical text, and which of them read each other's data."""
