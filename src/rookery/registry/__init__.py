"""The schema registry: Confluent's REST API over a state that is a fold of the `_schemas` topic."""
