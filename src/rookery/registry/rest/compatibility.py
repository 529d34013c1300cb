"""/compatibility: check the compatibility of a schema without registering it."""

from typing import Final

from rookery.registry import queries
from rookery.registry.entities import CompatibilityCheckResponse, RegisterSchemaRequest
from rookery.registry.rest.endpoints import Call, Endpoint
from rookery.registry.rest.parameters import NORMALIZE, VERBOSE
from rookery.registry.state import State


def _test(state: State, call: Call) -> CompatibilityCheckResponse:
    return queries.test_compatibility(
        state,
        call.text("subject"),
        call.body,
        version=call.text("version") if "version" in call.values else None,
        normalize=call.flag("normalize"),
        verbose=call.flag("verbose"),
    )


ENDPOINTS: Final = (
    Endpoint(
        method="POST",
        path="/compatibility/subjects/{subject}/versions/{version}",
        name="testCompatibilityBySubjectName",
        summary="Compare a schema with a version of the subject",
        handler=_test,
        response=CompatibilityCheckResponse,
        body=RegisterSchemaRequest,
        query=(NORMALIZE, VERBOSE),
        error_statuses=(422,),
    ),
    Endpoint(
        method="POST",
        path="/compatibility/subjects/{subject}/versions",
        name="testCompatibilityForSubject",
        summary="Compare a schema with the versions of the subject that its level requires",
        handler=_test,
        response=CompatibilityCheckResponse,
        body=RegisterSchemaRequest,
        query=(NORMALIZE, VERBOSE),
        error_statuses=(422,),
    ),
)
