"""The files of docs/cluster.md and deploy/ fit together, and the sentences that it quotes are those of the code."""

import re
from pathlib import Path
from uuid import uuid4

import pytest

from rookery.base.files import OsFiles
from rookery.node.format import FormatOptions, format_node
from rookery.node.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
FILES = re.findall(r"```properties\n(.*?)```", PAGE, re.DOTALL)


def load(text: str, path: Path, *overrides: str) -> Settings:
    file = path / "server.properties"
    file.write_text(text, encoding="utf-8")
    return Settings.load(file, [f"log.dirs={path / 'data'}", *overrides])


@pytest.mark.parametrize("text", [*FILES, (ROOT / "deploy" / "cluster.properties").read_text(encoding="utf-8")])
def test_the_files_are_those_of_a_member(text: str, tmp_path: Path) -> None:
    settings = load(text, tmp_path)
    assert not settings.is_sole_voter
    assert settings.without_effect == ()


def test_there_are_files_for_every_kind_of_node(tmp_path: Path) -> None:
    kinds = [(each.is_broker, each.is_controller) for each in (load(text, tmp_path) for text in FILES)]
    assert kinds == [(True, True), (False, True), (True, False), (True, True)]


def test_the_file_of_deploy_is_that_of_the_page() -> None:
    lines = set((ROOT / "deploy" / "cluster.properties").read_text(encoding="utf-8").splitlines())
    assert set(FILES[0].splitlines()) <= lines


@pytest.mark.parametrize("options", [{"standalone": True}, {"no_initial_controllers": True}])
def test_voters_in_the_log_are_formatted_as_the_page_says(tmp_path: Path, options: dict[str, bool]) -> None:
    settings = load(FILES[3], tmp_path)
    chosen = FormatOptions(
        cluster_id="MkU3OEVBNTcwNTJENDM2Qg",
        standalone=options.get("standalone", False),
        no_initial_controllers=options.get("no_initial_controllers", False),
    )
    assert format_node(OsFiles(), settings, chosen, new_uuid=uuid4, now_ms=1)


def test_the_quoted_sentences_are_in_the_code() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "rookery" / "node").glob("*.py"))
    for sentence in re.findall(r"^\| `([^`]+)`", PAGE, re.MULTILINE):
        words = re.split(r"\.\.\.|[A-Z0-9]\b|\d+|controller\.quorum\.voters|advertised\.listeners", sentence)
        for part in filter(None, (part.strip(" ,:=") for part in words)):
            assert part in re.sub(r'"\s*f?"', "", code), (sentence, part)
