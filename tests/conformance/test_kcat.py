"""kcat, as it is used from a shell."""

import json
import subprocess

import pytest

from tests.conformance.clients import Confluent
from tests.conformance.samples import CODECS, make_samples

pytestmark = pytest.mark.kcat
TIMEOUT_S = 60


def kcat(bootstrap: str, *arguments: str, text: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-q", "-b", bootstrap, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_metadata(bootstrap: str, topic: str) -> None:
    Confluent().produce(bootstrap, topic, make_samples(1))
    metadata = json.loads(kcat(bootstrap, "-L", "-J"))
    assert [broker["name"] for broker in metadata["brokers"]] == [bootstrap]
    assert topic in [found["topic"] for found in metadata["topics"]]


@pytest.mark.parametrize("codec", CODECS)
def test_produce_and_consume(bootstrap: str, topic: str, codec: str) -> None:
    lines = [f"key-{index}:value-{index}" for index in range(100)]
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-K:", "-z", codec, "-H", "origin=kcat", text="\n".join(lines))
    output = kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-f", "%o %k:%s %h\n")
    assert output.splitlines() == [f"{offset} {line} origin=kcat" for offset, line in enumerate(lines)]
    assert len(Confluent().consume(bootstrap, topic, 100)) == 100


def test_offsets_and_times(bootstrap: str, topic: str) -> None:
    samples = make_samples(30)
    Confluent().produce(bootstrap, topic, samples)
    for question, offset in ((-1, 30), (-2, 0), (samples[11].timestamp_ms, 11)):
        assert kcat(bootstrap, "-Q", "-t", f"{topic}:0:{question}").strip() == f"{topic} [0] offset {offset}"
    from_offset = kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-o", "25", "-e", "-f", "%o\n")
    assert from_offset.split() == ["25", "26", "27", "28", "29"]
    from_end = kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-o", "-3", "-e", "-f", "%o\n")
    assert from_end.split() == ["27", "28", "29"]
    between = (f"s@{samples[5].timestamp_ms}", f"e@{samples[9].timestamp_ms}")
    output = kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-o", between[0], "-o", between[1], "-e", "-f", "%o\n")
    assert output.split() == ["5", "6", "7", "8"]
