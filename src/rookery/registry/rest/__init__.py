"""The registry's REST interface, as Confluent's: paths, parameters, media types, error bodies, forwarding."""
