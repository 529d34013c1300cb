"""Compares the table of APIs with the schemas, the handlers and Kafka's own tables."""

from pathlib import Path

import pytest

from rookery.base.codes import AclOperation, AclResourceType
from rookery.broker import api_docs
from rookery.broker.access import cluster
from rookery.broker.access.guards import Unguarded
from rookery.broker.api_row import Api, ListenerType, Permission, Quota
from rookery.broker.api_table import _ROWS, APIS
from rookery.broker.dispatch import routes
from rookery.broker.visibility import ALL_OPERATIONS
from rookery.protocol.api import SERVED, SERVED_BY_CONTROLLERS, ApiKey, is_served
from rookery.protocol.codec import response_shape

ROOT = Path(__file__).parents[2]
HANDLERS = ROOT / "src" / "rookery" / "broker" / "handlers"
ROWS = [pytest.param(api, id=api.name) for api in APIS.values()]


def named(*names: str) -> set[ApiKey]:
    return {ApiKey[name] for name in names}


def test_every_api_has_one_row() -> None:
    assert [row.key for row in _ROWS] == sorted(SERVED.keys() | SERVED_BY_CONTROLLERS.keys())
    for listener, served in ((ListenerType.BROKER, SERVED), (ListenerType.CONTROLLER, SERVED_BY_CONTROLLERS)):
        assert [row.key for row in _ROWS if listener in row.listeners] == list(served)


@pytest.mark.parametrize("is_guarded", [False, True])
def test_every_version_has_a_route(is_guarded: bool) -> None:
    served = {(key, version) for key in ApiKey for version in range(100) if is_served(key, version)}
    assert routes(ListenerType.BROKER, is_guarded=is_guarded).keys() == served
    assert routes(ListenerType.CONTROLLER, is_guarded=is_guarded).keys() == {
        (key, version)
        for key, versions in SERVED_BY_CONTROLLERS.items()
        for version in range(versions.minimum, versions.maximum + 1)
    }


@pytest.mark.parametrize("api", ROWS)
def test_a_row_has_the_handlers_of_its_key(api: Api) -> None:
    on_broker = [handler for handler in (api.handle, api.handle_frame) if handler is not None]
    on_controller = [handler for handler in (api.handle_on_controller, api.handle_envelope) if handler is not None]
    assert len(on_broker) == (ListenerType.BROKER in api.listeners)
    assert len(on_controller) == (ListenerType.CONTROLLER in api.listeners)
    for handler in (*on_broker, *on_controller):
        assert handler.__module__.split(".")[-1] == f"k{api.key:02}_{api.key.name.lower()}"


@pytest.mark.parametrize("api", ROWS)
def test_responses_have_a_throttle_time_where_there_is_a_quota(api: Api) -> None:
    fields = {field.name for field in response_shape(api.key, api.versions[-1])}
    assert api.has_throttle_time == ("throttle_time_ms" in fields)


def test_quotas() -> None:
    """As in Kafka, creating and deleting topics and partitions counts as a controller mutation."""
    usual = (Quota.REQUEST, Quota.EXEMPT)
    kinds = {api.key: api.quota for api in APIS.values() if api.quota not in usual}
    assert kinds == {
        ApiKey.PRODUCE: Quota.PRODUCE,
        ApiKey.FETCH: Quota.FETCH,
        ApiKey.CREATE_TOPICS: Quota.CONTROLLER_MUTATION,
        ApiKey.DELETE_TOPICS: Quota.CONTROLLER_MUTATION,
        ApiKey.CREATE_PARTITIONS: Quota.CONTROLLER_MUTATION,
        ApiKey.SASL_HANDSHAKE: Quota.NONE,
        ApiKey.SASL_AUTHENTICATE: Quota.NONE,
        ApiKey.WRITE_TXN_MARKERS: Quota.NONE,
        ApiKey.VOTE: Quota.NONE,
        ApiKey.BEGIN_QUORUM_EPOCH: Quota.NONE,
        ApiKey.END_QUORUM_EPOCH: Quota.NONE,
        ApiKey.DESCRIBE_QUORUM: Quota.NONE,
        ApiKey.ENVELOPE: Quota.NONE,
    }
    exempt = {api.key for api in APIS.values() if api.quota is Quota.EXEMPT}
    assert all(APIS[key].listeners == (ListenerType.CONTROLLER,) for key in exempt)


def test_apis_that_change_metadata_are_forwarded() -> None:
    forwarded = {api.key for api in APIS.values() if api.is_forwarded}
    assert forwarded == named(
        "CREATE_TOPICS",
        "DELETE_TOPICS",
        "CREATE_PARTITIONS",
        "ALTER_CONFIGS",
        "ELECT_LEADERS",
        "INCREMENTAL_ALTER_CONFIGS",
        "ALTER_PARTITION_REASSIGNMENTS",
        "LIST_PARTITION_REASSIGNMENTS",
        "DESCRIBE_QUORUM",
        "UPDATE_FEATURES",
        "UNREGISTER_BROKER",
        "ADD_RAFT_VOTER",
        "REMOVE_RAFT_VOTER",
        "CREATE_ACLS",
        "DELETE_ACLS",
        "CREATE_DELEGATION_TOKEN",
        "RENEW_DELEGATION_TOKEN",
        "EXPIRE_DELEGATION_TOKEN",
        "ALTER_CLIENT_QUOTAS",
        "ALTER_USER_SCRAM_CREDENTIALS",
    )
    for api in APIS.values():
        source = (HANDLERS / f"k{api.key:02}_{api.key.name.lower()}.py").read_text()
        if "services.controller." in source or "services.quorum.receive" in source:
            # Only the active controller can respond, or the replica of the quorum that the request was sent to.
            assert api.is_forwarded or api.handle is None, api.name


def test_forwarded_apis_are_served_by_both_listeners_with_the_same_handler() -> None:
    both = {api.key for api in APIS.values() if api.listeners == (ListenerType.BROKER, ListenerType.CONTROLLER)}
    forwarded = {api.key for api in APIS.values() if api.is_forwarded}
    assert both - forwarded == named(
        "FETCH",
        "API_VERSIONS",
        "SASL_HANDSHAKE",
        "SASL_AUTHENTICATE",
        "DESCRIBE_CONFIGS",
        "DESCRIBE_CLUSTER",
        "DESCRIBE_ACLS",
        "DESCRIBE_DELEGATION_TOKEN",
        "DESCRIBE_USER_SCRAM_CREDENTIALS",
    )
    assert forwarded < both
    assert all(APIS[key].handle is APIS[key].handle_on_controller for key in forwarded)


def test_most_apis_need_a_permission() -> None:
    # A token's owner and its renewers need none to renew or end it, and for others there is none.
    logins = ("SASL_HANDSHAKE", "SASL_AUTHENTICATE")
    without = named("API_VERSIONS", *logins, "RENEW_DELEGATION_TOKEN", "EXPIRE_DELEGATION_TOKEN")
    assert {api.key for api in APIS.values() if not api.permissions} == without
    assert APIS[ApiKey.CREATE_PARTITIONS].permissions == (Permission(AclOperation.ALTER, AclResourceType.TOPIC),)


@pytest.mark.parametrize("api", ROWS)
def test_every_handler_has_a_guard_or_a_reason_for_none(api: Api) -> None:
    """An API without a guard would answer every client, whatever the ACLs say."""
    if api.handle is not None or api.handle_envelope is not None:
        assert api.guard is not None, f"name a guard of broker.access for {api.name}, or a reason why it needs none"
    if api.handle_on_controller is not None:
        assert api.guard is not None or api.guard_on_controller is not None, api.name
    assert (api.handle_frame is None) == (api.handle_frame_guarded is None), api.name
    if isinstance(api.guard, Unguarded):
        assert api.guard.reason


def test_apis_without_a_guard_are_few() -> None:
    unguarded = {api.key for api in APIS.values() if isinstance(api.guard, Unguarded)}
    logins = named("SASL_HANDSHAKE", "SASL_AUTHENTICATE", "API_VERSIONS")
    assert unguarded - logins == named("DESCRIBE_CLUSTER", "RENEW_DELEGATION_TOKEN", "EXPIRE_DELEGATION_TOKEN")


def test_requests_between_nodes_need_the_permission_of_nodes() -> None:
    between = {api.key for api in APIS.values() if api.listeners == (ListenerType.CONTROLLER,)}
    assert all(APIS[key].guard_of(ListenerType.CONTROLLER) is cluster.action for key in between | {ApiKey.FETCH})


def test_names() -> None:
    assert APIS[ApiKey.ADD_PARTITIONS_TO_TXN].metric_names == ("AddPartitionsToTxn", "AddPartitionsToTxnVerification")
    assert APIS[ApiKey.OFFSET_FOR_LEADER_EPOCH].metric_names == ("OffsetForLeaderEpoch",)
    names = [name for api in APIS.values() for name in api.metric_names]
    assert len(set(names)) == len(names)


def test_splits_begin_with_the_version_that_they_name() -> None:
    leave = APIS[ApiKey.LEAVE_GROUP]
    assert [leave.split_of(version) is not None for version in range(6)] == [False] * 3 + [True] * 3
    fetch = APIS[ApiKey.OFFSET_FETCH]
    assert [fetch.split_of(version) for version in (1, 7, 8)] == [fetch.splits[0], fetch.splits[0], fetch.splits[8]]


def test_authorized_operations() -> None:
    """The operations that exist for a resource type, as the bits that Kafka's clients read."""
    assert ALL_OPERATIONS[AclResourceType.TOPIC] == 0b1101_1111_1000
    assert ALL_OPERATIONS[AclResourceType.GROUP] == 0b1101_0100_1000
    assert ALL_OPERATIONS[AclResourceType.CLUSTER] == 0b1_1111_1010_0000


def test_the_page_is_current() -> None:
    page = ROOT / "docs" / "apis.md"
    assert page.read_text() == api_docs.render(), "run: make docs"
