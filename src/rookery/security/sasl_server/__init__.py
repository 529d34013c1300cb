"""The broker's side of SASL: the mechanisms, and the states of a connection until its client has logged in."""
