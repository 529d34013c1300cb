"""Mistyped names: similar existing names are suggested, if the cluster can be asked."""

import pytest
from typer.testing import CliRunner

from rookery.base.errors import ErrorCode
from rookery.cli.commands import app
from rookery.cli.suggestions import suggestion
from rookery.testing import EmbeddedBroker
from tests.support.broker import free_port


def fail(broker: EmbeddedBroker, *words: str) -> str:
    result = CliRunner().invoke(app, [*words, "--bootstrap-server", broker.bootstrap_servers])
    assert result.exit_code == 1, result.output
    return result.output


@pytest.mark.parametrize(
    "words",
    [
        ["topics", "describe", "ordres"],
        ["topics", "delete", "ordres", "--yes"],
        ["topics", "alter", "ordres", "--set", "retention.ms=1"],
        ["consume", "ordres", "--until-end"],
    ],
)
def test_a_similar_topic_is_suggested(rookery: EmbeddedBroker, words: list[str]) -> None:
    rookery.create_topic("orders")
    assert "did you mean orders?" in fail(rookery, *words)


@pytest.mark.parametrize("words", [["groups", "describe", "biling"], ["groups", "delete", "biling", "--yes"]])
def test_a_similar_group_is_suggested(rookery: EmbeddedBroker, words: list[str]) -> None:
    rookery.produce("orders", "an apple")
    options = ["--bootstrap-server", rookery.bootstrap_servers]
    read = ["consume", "orders", "--group", "billing", "--from", "beginning", "--until-end"]
    assert CliRunner().invoke(app, [*read, *options]).exit_code == 0
    assert "did you mean billing?" in fail(rookery, *words)


def test_no_suggestion_without_a_similar_name(rookery: EmbeddedBroker) -> None:
    rookery.create_topic("orders")
    assert "did you mean" not in fail(rookery, "topics", "describe", "invoices")


def test_no_suggestion_for_other_errors() -> None:
    assert suggestion(ErrorCode.REQUEST_TIMED_OUT, "orders") == ""


def test_an_unreachable_cluster_leaves_the_error_of_the_command() -> None:
    words = ["topics", "describe", "ordres", "--bootstrap-server", f"127.0.0.1:{free_port()}"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    assert "cannot connect" in result.output
