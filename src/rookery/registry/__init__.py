"""The schema registry: Confluent's REST interface over a fold of the `_schemas` topic."""
