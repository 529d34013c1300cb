"""Generates docs/apis.md from the table of APIs: `python -m rookery.broker.api_docs > docs/apis.md`."""

import sys
from collections.abc import Iterable

from rookery.base.config_docs import markdown_table
from rookery.broker.api_row import Api, Permission
from rookery.broker.api_table import APIS

_INTRODUCTION = """\
# APIs

<!-- Generated from the table in src/rookery/broker/api_table.py by `make docs`. Do not edit. -->

The requests of Kafka's protocol that nodes serve. *Versions* are those that ApiVersions advertises.

These columns have an effect today:

- *versions*: any other version closes the connection; ApiVersions is answered with UNSUPPORTED_VERSION, and so is
  Produce in v0 to v2.
- *in pieces*: a request with many items is cut into pieces, between which the broker serves other connections. Requests
  of other APIs are decided as a whole, and may have fewer items ([bounds.md](bounds.md)).
- *listeners*: a listener of brokers or of controllers rejects the requests of the other kind.
- *forwarded*: a broker that is not the active controller sends these requests to it, in an Envelope.
- *permissions*: what the guard of the API may ask the authorizer for, if there is one
  ([authorization.md](authorization.md)). Not every request needs all permissions of its API: those on
  TRANSACTIONAL_ID are for transactions, CLUSTER_ACTION is for brokers, CREATE on CLUSTER replaces CREATE on TOPIC.
- *quota*: the client's quota that a request is charged to, besides that of request time ([quotas.md](quotas.md)). A
  response has a throttle time unless the column says none; requests between nodes are exempt, and are not throttled.

This column is a fact about Kafka that **has no effect yet**:

- *metric names*: the tag `request` of Kafka's `kafka.network:type=RequestMetrics`. See [metrics.md](metrics.md).
"""
_TITLES = ("API", "key", "versions", "in pieces", "listeners", "forwarded", "permissions", "quota", "metric names")


def render() -> str:
    return _INTRODUCTION + "\n" + markdown_table(_TITLES, (_row(api) for api in APIS.values()))


def _row(api: Api) -> tuple[str, ...]:
    minimum, maximum = api.advertised
    return (
        api.name,
        str(int(api.key)),
        str(minimum) if minimum == maximum else f"{minimum} to {maximum}",
        _pieces(api),
        ", ".join(listener.value for listener in api.listeners),
        "yes" if api.is_forwarded else "",
        _permissions(api.permissions),
        api.quota.value,
        ", ".join(api.metric_names),
    )


def _pieces(api: Api) -> str:
    if not api.splits:
        return ""
    first = min(api.splits)
    return "yes" if first <= api.versions.start else f"from v{first}"


def _permissions(permissions: Iterable[Permission]) -> str:
    return ", ".join(f"{each.operation.name} on {each.resource_type.name}" for each in permissions)


if __name__ == "__main__":
    sys.stdout.write(render())
