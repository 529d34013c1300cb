"""Every codec, written by every client and read by every other: the broker does not change the bytes."""

import pytest

from tests.conformance.clients import CLIENTS, ForeignClient
from tests.conformance.samples import CODECS, make_samples

SAMPLES = make_samples(150)


@pytest.mark.parametrize("writer", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("codec", CODECS)
def test_written_by_one_read_by_all(bootstrap: str, topic: str, codec: str, writer: ForeignClient) -> None:
    offsets = writer.produce(bootstrap, topic, SAMPLES, codec=codec)
    assert offsets == list(range(len(SAMPLES)))
    for reader in CLIENTS:
        assert reader.consume(bootstrap, topic, len(SAMPLES)) == SAMPLES, reader.name


@pytest.mark.parametrize("codec", CODECS)
def test_one_log_may_hold_batches_of_all_clients(bootstrap: str, topic: str, codec: str) -> None:
    written = []
    for client in CLIENTS:
        samples = make_samples(20, prefix=client.name)
        client.produce(bootstrap, topic, samples, codec=codec)
        written += samples
    for reader in CLIENTS:
        assert reader.consume(bootstrap, topic, len(written)) == written, reader.name
