import io

import pytest

from rookery.cli.errors import CommandError
from rookery.cli.output import Styled, confirm, print_table
from rookery.cli.produce import split_lines
from rookery.cli.progress import working


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_table_in_a_pipe_is_plain_aligned_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME", "COUNT"], [("a", 5), (Styled("longer", "bold red"), 12)], title="things")
    assert capsys.readouterr().out == "things\nNAME    COUNT\na           5\nlonger     12\n"


def test_an_empty_table_has_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME", "COUNT"], [])
    assert capsys.readouterr().out == "NAME  COUNT\n"


def test_an_empty_cell_is_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["A"], [(None,)])
    assert capsys.readouterr().out == "A\n-\n"


def test_a_table_in_a_terminal_does_not_interpret_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    print_table(["NAME"], [("[bold]x[/bold]",), (Styled("y", "red"),)], title="t")
    assert "[bold]x[/bold]" in terminal.getvalue()


def test_without_a_terminal_yes_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(CommandError, match="--yes"):
        confirm("Delete it?", yes=False)
    confirm("Delete it?", yes=True)


@pytest.mark.parametrize(("typed", "done"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_the_user_is_asked_in_a_terminal(monkeypatch: pytest.MonkeyPatch, typed: str, done: bool) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    if done:
        confirm("Delete it?", yes=False)
    else:
        with pytest.raises(CommandError, match="nothing was done"):
            confirm("Delete it?", yes=False)


class Chunks:
    """A source whose reads return the given chunks."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = list(chunks)

    def read(self, size: int, /) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ((b"a\nb\n",), [[b"a", b"b"]]),
        ((b"a", b"b\nc"), [[b"ab"], [b"c"]]),
        ((b"a\r", b"\n\n"), [[b"a", b""]]),
        ((), []),
        ((b"no end",), [[b"no end"]]),
    ],
)
def test_lines_are_yielded_when_reads_complete_them(chunks: tuple[bytes, ...], expected: list[list[bytes]]) -> None:
    assert list(split_lines(Chunks(*chunks))) == expected


def test_the_spinner_is_shown_in_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: dict[type, str] = {}
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr("sys.stderr", stream)
        with working("compiling"):
            pass
        shown[type(stream)] = stream.getvalue()
    assert "compiling" in shown[Terminal]
    assert shown[io.StringIO] == ""
