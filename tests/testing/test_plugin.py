"""The pytest plugin, in separate test runs; and the examples of docs/testing.md, which are such tests."""

import re
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

DOCS = Path(__file__).resolve().parents[2] / "docs" / "testing.md"


def test_the_examples_of_the_documentation_pass(pytester: pytest.Pytester) -> None:
    examples = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert examples
    pytester.makepyfile(**{f"test_example_{index}": text for index, text in enumerate(examples)})
    result = pytester.runpytest("--strict-markers")
    outcomes = result.parseoutcomes()
    assert outcomes == {"passed": sum(text.count("def test_") for text in examples)}


def test_the_documented_configuration_is_read(pytester: pytest.Pytester) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    pytester.makepyprojecttoml(block)
    pytester.makepyfile("""
        import pytest
        from confluent_kafka.admin import AdminClient, ConfigResource

        def setting(broker, name):
            resource = ConfigResource("broker", "1")
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            return admin.describe_configs([resource])[resource].result(10)[name].value

        def test_ini(rookery, rookery_session):
            assert setting(rookery, "num.partitions") == "3"
            assert setting(rookery_session, "num.partitions") == "3"

        @pytest.mark.rookery(settings={"num.partitions": "5"})
        def test_marker(rookery):
            assert setting(rookery, "num.partitions") == "5"
            assert setting(rookery, "message.max.bytes") == "100000"
    """)
    pytester.runpytest().assert_outcomes(passed=2)


def test_every_test_has_its_own_broker_and_the_session_has_one(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        seen = []

        def test_first(rookery, rookery_session):
            rookery.create_topic("t")
            rookery_session.create_topic("t")
            seen.append(rookery_session.bootstrap_servers)

        def test_second(rookery, rookery_session):
            rookery.create_topic("t")
            assert seen == [rookery_session.bootstrap_servers]
            assert rookery is not rookery_session
    """)
    pytester.runpytest().assert_outcomes(passed=2)


def test_a_cluster_has_as_many_brokers_as_its_marker_says(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.rookery(brokers=1, settings={"num.partitions": "2"})
        def test_marker(rookery_cluster):
            rookery_cluster.create_topic("t")
            assert rookery_cluster.nodes == [1]
            assert rookery_cluster.leader_of("t", 1) == 1

        @pytest.mark.rookery(brokers=3)
        def test_one_broker_is_no_cluster(rookery):
            pass
    """)
    result = pytester.runpytest()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*for a cluster, use rookery_cluster*"])


def test_a_failing_test_leaves_no_thread(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import threading

        # Threads of other tests in this process: synchronous clients keep theirs.
        BEFORE = set(threading.enumerate())

        def test_fails(rookery):
            rookery.pause()
            assert False

        def test_after():
            assert [each.name for each in set(threading.enumerate()) - BEFORE if "rookery" in each.name] == []
    """)
    pytester.runpytest().assert_outcomes(passed=1, failed=1)


def test_a_project_that_does_not_use_it_does_not_import_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys

        def test_modules():
            ours = ("rookery", "kio", "structlog", "cramjam")
            loaded = {name for name in sys.modules if name.partition(".")[0] in ours}
            assert loaded == {"rookery", "rookery.pytest_plugin"}
    """)
    result = pytester.run(sys.executable, "-m", "pytest")
    result.assert_outcomes(passed=1)


def test_an_invalid_marker_is_an_error_of_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.rookery(settings={"num.partition": "3"})
        def test_it(rookery):
            pass
    """)
    result = pytester.runpytest()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*num.partitions*"])
