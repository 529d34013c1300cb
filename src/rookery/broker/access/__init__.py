"""What each API asks of the authorizer, and what it answers if that is denied: one guard per API (docs/decisions/0036).

`broker.permissions` asks the authorizer for one request. `guards` runs a guard before a handler and merges its errors
into the response. The other modules have the guards themselves, by families of APIs; `broker.api_table` names them.
"""
