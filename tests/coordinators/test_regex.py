from rookery.coordinators import regex


def test_whole_names_are_matched() -> None:
    names = ["orders", "orders-eu", "my-orders", "returns"]
    assert regex.matching("orders.*", names) == {"orders", "orders-eu"}
    assert regex.matching("^orders$|returns", names) == {"orders", "returns"}


def test_an_empty_pattern_matches_nothing() -> None:
    assert regex.matching("", ["", "a"]) == frozenset()
    assert regex.problem("") is None


def test_what_re2_does_not_know_is_refused() -> None:
    assert regex.problem("orders-[a-z]+") is None
    for pattern in ("(orders", "(?=a)b", r"(a)\1", "((a{1000}){1000}){1000}"):
        assert regex.problem(pattern)


def test_a_pattern_that_would_make_others_backtrack_is_quick() -> None:
    assert regex.matching("(a+)+b", ["a" * 249]) == frozenset()
