"""The benchmark: Rookery and Apache Kafka side by side on one machine, with `python -m bench` or `make bench`."""
