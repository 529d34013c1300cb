"""Rookery and Apache Kafka side by side on one machine: `python -m bench`, or `make bench`."""
