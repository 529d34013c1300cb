from rookery.coordinators import regex


def test_whole_names_are_matched() -> None:
    names = ["orders", "orders-eu", "my-orders", "returns"]
    assert regex.matching("orders.*", names) == {"orders", "orders-eu"}
    assert regex.matching("^orders$|returns", names) == {"orders", "returns"}


def test_an_empty_pattern_matches_nothing() -> None:
    assert regex.matching("", ["", "a"]) == frozenset()
    assert regex.problem("") is None


def test_patterns_that_re2_does_not_support_are_rejected() -> None:
    assert regex.problem("orders-[a-z]+") is None
    for pattern in ("(orders", "(?=a)b", r"(a)\1", "((a{1000}){1000}){1000}"):
        assert regex.problem(pattern)


def test_a_pattern_that_makes_other_engines_backtrack_is_quick() -> None:
    assert regex.matching("(a+)+b", ["a" * 249]) == frozenset()


def test_groups_do_not_capture() -> None:
    """Captures of 16,000 groups took gigabytes."""
    pattern = "()" * 4000 + "topic.*"
    assert regex.problem(pattern) is None
    assert regex._compile(pattern).groups == 0
    assert regex.matching(pattern, ["topic-1", "other"]) == {"topic-1"}


def test_long_and_large_patterns_are_rejected() -> None:
    assert "8193 characters" in str(regex.problem("a" * 8193))
    assert regex.problem("(t)?" * 1500 + ".*") == "pattern too large"
    assert regex.problem("a.{1000}b") is not None
    # It may be in the log of a broker with other limits.
    assert regex.matching("(t)?" * 1500 + ".*", ["t"]) == frozenset()


def test_a_large_pattern_is_matched_with_fewer_names_per_slice() -> None:
    assert regex.names_per_slice("orders-.*") == 2000
    assert 20 <= regex.names_per_slice("a{500}") < 300
