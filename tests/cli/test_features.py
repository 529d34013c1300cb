"""`rookery features` against a running broker."""

import json
from collections.abc import Iterator

import pytest

from tests.cli.test_end_to_end import rookery
from tests.support.broker import BrokerProcess, start_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with start_broker(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


def level(broker: BrokerProcess, feature: str) -> int:
    found = json.loads(rookery(broker, "features", "describe", "--json").stdout)
    assert found["epoch"] > 0
    levels: dict[str, int] = {row["feature"]: row["level"] for row in found["features"]}
    return levels[feature]


def test_describe(broker: BrokerProcess) -> None:
    found = json.loads(rookery(broker, "features", "describe", "--json").stdout)
    assert {"feature": "metadata.version", "level": 30, "supported_min": 22, "supported_max": 30} in found["features"]
    lines = rookery(broker, "features", "describe").stdout.splitlines()
    assert lines[0].split() == ["FEATURE", "LEVEL", "SUPPORTED"]
    assert [line.split()[0] for line in lines[1:]] == [
        "eligible.leader.replicas.version",
        "group.version",
        "kraft.version",
        "metadata.version",
        "transaction.version",
    ]


def test_downgrade_and_upgrade(broker: BrokerProcess) -> None:
    tried = rookery(broker, "features", "downgrade", "transaction.version=0", "--validate-only")
    assert tried.stdout == "would downgrade transaction.version to 0\n"
    assert level(broker, "transaction.version") == 2
    rookery(broker, "features", "downgrade", "transaction.version=1", "group.version=0")
    assert (level(broker, "transaction.version"), level(broker, "group.version")) == (1, 0)
    assert (
        "add --yes" in rookery(broker, "features", "downgrade", "transaction.version=0", "--unsafe", exit_code=1).stderr
    )
    rookery(broker, "features", "downgrade", "transaction.version=0", "--unsafe", "--yes")
    assert level(broker, "transaction.version") == 0
    raised = rookery(broker, "features", "upgrade", "transaction.version=2", "group.version=1")
    assert raised.stdout == "upgraded transaction.version to 2\nupgraded group.version to 1\n"
    assert (level(broker, "transaction.version"), level(broker, "group.version")) == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["upgrade", "transaction.version=9"], "supports levels 0 to 2"),
        (["upgrade", "transaction.version=1"], "lowering it needs"),
        (["downgrade", "metadata.version=21"], "supports levels 22 to 30"),
        (["downgrade", "unheard.of=1"], "does not know this feature"),
    ],
)
def test_changes_that_are_refused(broker: BrokerProcess, arguments: list[str], reason: str) -> None:
    refused = rookery(broker, "features", *arguments, exit_code=1)
    assert reason in refused.stderr
    assert "INVALID_UPDATE_VERSION" in refused.stderr
