"""`sasl.kerberos.principal.to.local.rules` beside Apache Kafka's own code: a table, and rules that are put together."""

import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from rookery.base.errors import ConfigError
from rookery.security.kerberos_rules import KerberosRules, NoLocalNameError
from tests.conformance.java_tools import JARS, TIMEOUT_S
from tests.security.test_kerberos_rules import REALM, TABLE, WRONG

pytestmark = pytest.mark.java

SOURCE = Path(__file__).parent / "java" / "LocalNames.java"
COUNT = 3000
FORMATS = ("$1", "$1@$0", "$2", "$1;$2", "$1$1", "x$0", "$3", "", "$", "$2.$1")
PATTERNS = ("", "(.*)", "(a.*)", "(^[a-c]+@R$)", "(.*;admin)", "(\\w+)", "([)", "(.*@(R|S)", "(a|b)", "()")
SUBSTITUTIONS = (
    *("", "s/a/b/", "s/a/b/g", "s/@.*//", "s/;.*$//", "s/(.)(.)/$2$1/g", "s/x*/-/g", "s/a/$1/", "s/(a)|b/<$1>/g"),
    *("s/a/\\$/", "s/a/\\", "s/^/x/", "s/$/x/g", "s/[/b/", "s/a/$0$0/g", "s/(a)/$12/"),
)
CASES = ("", "/", "/L", "/U", "L", "U", "/X", "//L")
PRINCIPALS = ("a@R", "A@R", "ab/admin@R", "alice@S", "banana/x@S", "a", "a/b", "a/b/c@R", "@R", "a@b@R", "ä@R", "bab@R")


def in_kafka(questions: Sequence[tuple[str, str, Sequence[str]]]) -> list[str]:
    """Return Kafka's answers for default realms, principals and rules."""
    lines = "".join("\t".join((realm, principal, *rules)) + "\n" for realm, principal, rules in questions)
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*", str(SOURCE)]
    done = subprocess.run(command, input=lines.encode(), capture_output=True, timeout=TIMEOUT_S, check=True)
    answers = done.stdout.decode().splitlines()
    assert len(answers) == len(questions)
    return answers


def here(realm: str, principal: str, rules: Sequence[str]) -> str:
    try:
        return f"= {KerberosRules.parse(rules).local_name(principal, realm)}"
    except ConfigError:
        return "invalid"
    except NoLocalNameError:
        return "none"


def test_the_table() -> None:
    questions = [(REALM, principal, [rule for rule in rules.split(",") if rule]) for rules, principal, _ in TABLE]
    expected = ["none" if name is None else f"= {name}" for _, _, name in TABLE]
    assert in_kafka(questions) == expected


def test_kafka_rejects_what_is_rejected_here_or_never_finds_a_user() -> None:
    """Some rules fail in Kafka only at a login to which they apply."""
    questions = [(REALM, f"alice@{REALM}", [rule]) for rule in WRONG]
    answers = dict(zip(WRONG, in_kafka(questions), strict=True))
    assert {rule: answer for rule, answer in answers.items() if answer.startswith("=")} == {}


def test_rules_that_are_put_together() -> None:
    chosen = random.Random(7)

    def rule() -> str:
        parts = (chosen.choice(part) for part in (FORMATS, PATTERNS, SUBSTITUTIONS, CASES))
        form, pattern, substitution, case = parts
        return chosen.choice(("DEFAULT", *[f"RULE:[{chosen.choice((1, 2))}:{form}]{pattern}{substitution}{case}"] * 4))

    questions = [
        ("R", chosen.choice(PRINCIPALS), [rule() for _ in range(chosen.choice((1, 1, 2)))]) for _ in range(COUNT)
    ]
    answers = [(here(*question), kafka) for question, kafka in zip(questions, in_kafka(questions), strict=True)]
    # A rule that would fail at some logins in Kafka is refused here.
    differences = [
        (question, ours, kafka)
        for question, (ours, kafka) in zip(questions, answers, strict=True)
        if ours not in ("invalid", kafka)
    ]
    assert differences == []
    assert sum(ours.startswith("=") for ours, _ in answers) > COUNT // 10
