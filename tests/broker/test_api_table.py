"""Compares the table of APIs with the schemas, the handlers and Kafka's own tables."""

from pathlib import Path

import pytest

from rookery.base.codes import AclOperation, AclResourceType
from rookery.broker import api_docs
from rookery.broker.access import NO_OPERATIONS, authorized_operations
from rookery.broker.api_table import _ROWS, APIS, Api, ListenerType, Permission, Quota
from rookery.broker.dispatch import _ROUTES
from rookery.protocol.api import SERVED, ApiKey, is_served
from rookery.protocol.codec import response_shape

ROOT = Path(__file__).parents[2]
HANDLERS = ROOT / "src" / "rookery" / "broker" / "handlers"
ROWS = [pytest.param(api, id=api.name) for api in APIS.values()]


def named(*names: str) -> set[ApiKey]:
    return {ApiKey[name] for name in names}


def test_every_api_has_one_row() -> None:
    assert [row.key for row in _ROWS] == list(SERVED)


def test_every_version_has_a_route() -> None:
    served = {(key, version) for key in ApiKey for version in range(100) if is_served(key, version)}
    assert _ROUTES.keys() == served


@pytest.mark.parametrize("api", ROWS)
def test_a_row_has_the_handler_of_its_key(api: Api) -> None:
    (handler,) = [handler for handler in (api.handle, api.handle_frame) if handler is not None]
    assert handler.__module__.split(".")[-1] == f"k{api.key:02}_{api.key.name.lower()}"


@pytest.mark.parametrize("api", ROWS)
def test_responses_have_a_throttle_time_where_there_is_a_quota(api: Api) -> None:
    fields = {field.name for field in response_shape(api.key, api.versions[-1])}
    assert api.has_throttle_time == ("throttle_time_ms" in fields)


def test_quotas() -> None:
    """As in Kafka, creating and deleting topics and partitions counts as a controller mutation."""
    kinds = {api.key: api.quota for api in APIS.values() if api.quota is not Quota.REQUEST}
    assert kinds == {
        ApiKey.PRODUCE: Quota.PRODUCE,
        ApiKey.FETCH: Quota.FETCH,
        ApiKey.CREATE_TOPICS: Quota.CONTROLLER_MUTATION,
        ApiKey.DELETE_TOPICS: Quota.CONTROLLER_MUTATION,
        ApiKey.CREATE_PARTITIONS: Quota.CONTROLLER_MUTATION,
        ApiKey.WRITE_TXN_MARKERS: Quota.NONE,
    }


def test_apis_that_change_metadata_are_forwarded() -> None:
    forwarded = {api.key for api in APIS.values() if api.is_forwarded}
    assert forwarded == named(
        "CREATE_TOPICS",
        "DELETE_TOPICS",
        "CREATE_PARTITIONS",
        "ALTER_CONFIGS",
        "INCREMENTAL_ALTER_CONFIGS",
        "UPDATE_FEATURES",
    )
    calls_controller = {
        api.key
        for api in APIS.values()
        if "services.controller." in (HANDLERS / f"k{api.key:02}_{api.key.name.lower()}.py").read_text()
    }
    assert calls_controller == forwarded


def test_forwarded_apis_are_served_by_controllers() -> None:
    on_controllers = {api.key for api in APIS.values() if ListenerType.CONTROLLER in api.listeners}
    forwarded = {api.key for api in APIS.values() if api.is_forwarded}
    assert on_controllers - forwarded == named("FETCH", "API_VERSIONS", "DESCRIBE_CONFIGS", "DESCRIBE_CLUSTER")
    assert forwarded < on_controllers
    assert all(ListenerType.BROKER in api.listeners for api in APIS.values())


def test_all_apis_but_the_handshake_need_a_permission() -> None:
    assert {api.key for api in APIS.values() if not api.permissions} == {ApiKey.API_VERSIONS}
    assert APIS[ApiKey.CREATE_PARTITIONS].permissions == (Permission(AclOperation.ALTER, AclResourceType.TOPIC),)


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
    assert authorized_operations(AclResourceType.TOPIC) == 0b1101_1111_1000
    assert authorized_operations(AclResourceType.GROUP) == 0b1101_0100_1000
    assert authorized_operations(AclResourceType.CLUSTER) == 0b1_1111_1010_0000
    assert authorized_operations(AclResourceType.CLUSTER, requested=False) == NO_OPERATIONS


def test_the_page_is_current() -> None:
    page = ROOT / "docs" / "apis.md"
    assert page.read_text() == api_docs.render(), "run: make docs"
