"""Totals of traffic never fall."""

from rookery.telemetry.traffic import Traffic


def test_a_topic_that_is_gone_stays_in_the_total() -> None:
    traffic = Traffic()
    traffic.of("a").bytes_in += 5
    traffic.of("b").bytes_in += 7
    traffic.others.failed_fetches += 1
    traffic.remove("a")
    traffic.remove("never there")
    assert [topic for topic, _ in traffic] == ["b"]
    assert (traffic.total().bytes_in, traffic.total().failed_fetches) == (12, 1)
    traffic.of("a").bytes_in += 1
    assert (traffic.total().bytes_in, len(traffic)) == (13, 2)
