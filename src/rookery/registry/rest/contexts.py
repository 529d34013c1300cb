"""/contexts: which there are. What is below a context's path is the same as without it: see `paths`."""

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
        summary="The contexts that there are",
        handler=_list,
        answer=list[str],
        query=(Parameter("contextPrefix", "What names begin with.", default=""), OFFSET, LIMIT),
    ),
)
