"""/contexts: the list of contexts. `paths` rewrites the paths below a context to paths without it."""

from typing import Final

from rookery.registry import queries
from rookery.registry.rest.endpoints import Call, Endpoint
from rookery.registry.rest.parameters import LIMIT, OFFSET, Parameter
from rookery.registry.state import State


def _list(state: State, call: Call) -> list[str]:
    return queries.list_contexts(state, prefix=call.text("contextPrefix"), **call.page(call.settings.context_limit))


ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/contexts",
        name="listContexts",
        summary="The contexts of the registry",
        handler=_list,
        response=list[str],
        query=(Parameter("contextPrefix", "The prefix of the names.", default=""), OFFSET, LIMIT),
    ),
)
