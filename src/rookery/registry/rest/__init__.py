"""The registry's REST API, compatible with Confluent's: paths, parameters, media types, error bodies, forwarding."""
