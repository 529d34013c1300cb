"""The style rules that a machine can check, as tests. CONTRIBUTING.md says why they exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.protocol.api import ApiKey

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
DOCS = ROOT / "docs"
HANDLERS = SOURCE / "rookery" / "broker" / "handlers"

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
MERGE_MARKERS = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
OPEN_ENDS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".xml", ".sh", ".yml", ".yaml", ".txt", ".properties", ""}
# Paths that exist on one machine only, and the hosts that a mirror or proxy would replace.
MACHINE_PATHS = re.compile(r"(?<![\w.}\"'-])/(?:work|root|home/\w+|tmp)/[\w.]")
# On PyPI, `rookery` is another program: a command that installs it by that name installs the wrong one.
WRONG_INSTALL = re.compile(r"pip install[^\n`]*?(?<![\w./-])rookery(?![\w./-])")
# Words of a private dialect that slowed readers, and sentences without a subject; CONTRIBUTING.md says what to write.
DIALECT = re.compile(
    r"(?i:(?<![a-z])(?:nobody|somebody|whoever|anew|told|doomed|nonsense|bury|buries|buried|goodbye|in[ _]peace|slabs?)"
    r"(?![a-z]))"
    r"|(?:^|[.:;!?] |\"\"\"|# )(?:Who|Whom|Whose) [a-z]+"
    r"|(?:\"\"\"|# )(?:Of|Behind|Beside|Besides|Otherwise) [a-z`]",
    re.MULTILINE,
)
REGISTRY_HOSTS = re.compile(r"pypi\.org|pythonhosted|repo1?\.maven|docker\.io|--(?:extra-)?index-url", re.IGNORECASE)


def _ignored_names() -> set[str]:
    lines = (ROOT / ".gitignore").read_text().splitlines()
    return {line.strip("/") for line in lines if line.endswith("/")} | {".git"}


def _files() -> Iterator[Path]:
    """Everything that belongs to the repository; found without git, which a fresh machine may lack."""
    ignored = _ignored_names()
    pending = [ROOT]
    while pending:
        for path in sorted(pending.pop().iterdir()):
            if path.name in ignored or path.name.endswith(".egg-info"):
                continue
            if path.is_dir():
                pending.append(path)
            else:
                yield path


FILES = sorted(_files())
TEXT_FILES = [path for path in FILES if path.suffix in TEXT_SUFFIXES]
PYTHON_FILES = [path for path in FILES if path.suffix == ".py"]
SOURCE_FILES = [path for path in PYTHON_FILES if path.is_relative_to(SOURCE)]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def test_the_walk_finds_the_repository() -> None:
    names = {_name(path) for path in FILES}
    assert {"README.md", "src/rookery/base/types.py", "tests/test_tidy.py"} <= names
    assert not any(name.startswith(".venv") for name in names)


@pytest.mark.parametrize("path", TEXT_FILES, ids=_name)
def test_text_files_are_clean(path: Path) -> None:
    data = path.read_bytes()
    assert b"\r" not in data, "line endings are LF"
    text = data.decode()
    assert not text or text.endswith("\n"), "ends with a newline"
    assert path.name == "LICENSE" or not text.endswith("\n\n"), "ends with one newline"
    assert not MERGE_MARKERS.search(text), "a merge is not finished"
    if path.name not in {"Makefile", "LICENSE"}:
        assert "\t" not in text, "no tabs"
    if path != Path(__file__):
        assert not MACHINE_PATHS.findall(text), "no paths of one machine"
        assert not REGISTRY_HOSTS.findall(text), "no package registries: pip and maven know theirs"
        assert not WRONG_INSTALL.findall(text), "rookery on PyPI is another program: docs/install.md has the right form"
        assert [found.group() for found in DIALECT.finditer(text)] == [], "plain English: see Words in CONTRIBUTING.md"


def test_the_dialect_is_found() -> None:
    for line in (
        "# Who waits gets it.",
        "nobody waits",
        "test_nobody_waits",
        '"""Of the client alone."""',
        "It is told.",
    ):
        assert DIALECT.search(line), line
    for line in ("# Offsets of the client.", "The caller whose turn it is", "A retold story", "Otherwise, retry."):
        assert not DIALECT.search(line), line


def test_the_wrong_install_commands_are_found() -> None:
    for wrong in ("pip install rookery", "pip install 'rookery[spark]'", 'pip install -q "rookery[x,y]" six'):
        assert WRONG_INSTALL.search(wrong), wrong
    for right in (
        "pip install '.[spark]'",
        "pip install 'rookery-streaming[spark]'",
        "pip install dist/rookery_streaming",
    ):
        assert not WRONG_INSTALL.search(right), right


@pytest.mark.parametrize("path", PYTHON_FILES, ids=_name)
def test_python_files_fit_the_house(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= FILE_LINES_MAX
    module = ast.parse(text)
    if text.strip() and not path.name.startswith(("__init__", "test_")):
        assert ast.get_docstring(module), "a module opens with a docstring"
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{node.name} has {lines} lines"


@pytest.mark.parametrize("path", [path for path in PYTHON_FILES if path.name == "__init__.py"], ids=_name)
def test_packages_hold_nothing_but_docstring_and_exports(path: Path) -> None:
    for node in _parse(path).body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_export = isinstance(node, ast.ImportFrom) or (
            isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]
        )
        assert is_docstring or is_export, f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", SOURCE_FILES, ids=_name)
def test_source_is_finished(path: Path) -> None:
    text = path.read_text()
    assert not OPEN_ENDS.findall(text), "open ends belong in issues"
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "breakpoint", f"line {node.lineno}"
            assert node.func.id != "print" or "cli" in path.parts, f"line {node.lineno}: logs are for that"
    for line in text.splitlines():
        if "# type: ignore" in line:
            assert re.search(r"# type: ignore\[[\w, -]+\]  ?# \S", line), f"say why: {line.strip()}"


def test_only_the_codec_imports_by_name() -> None:
    """Import rules see `import` statements only. The codec loads kio's schemas by name, as they are needed."""
    dynamic = [_name(path) for path in SOURCE_FILES if re.search(r"import_module|__import__", path.read_text())]
    assert dynamic == ["src/rookery/protocol/codec.py"]


def test_handlers_are_named_by_their_key() -> None:
    for path in HANDLERS.glob("*.py"):
        match = re.fullmatch(r"k(\d\d)_(\w+)\.py", path.name)
        if match is None:
            assert path.name == "__init__.py", f"{path.name}: a handler's file is named kNN_api_name.py"
            continue
        assert ApiKey(int(match[1])).name.lower() == match[2]


def test_every_page_is_linked() -> None:
    linking = [DOCS / "README.md", DOCS / "architecture.md"]
    linked = {
        (page.parent / target).resolve()
        for page in linking
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in target
    }
    pages = {path for path in FILES if path.is_relative_to(DOCS) and path.suffix == ".md"}
    assert sorted(map(_name, pages - linked - set(linking))) == []


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".md"], ids=_name)
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    missing = [target for target in targets if "://" not in target and not (path.parent / target).exists()]
    assert missing == []


def test_decisions_are_numbered() -> None:
    names = sorted(path.name for path in (DOCS / "decisions").glob("*.md"))
    assert names
    assert all(re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", name) for name in names), names
    numbers = [int(name[:4]) for name in names]
    assert numbers == sorted(set(numbers)), "one number, one decision"


def test_every_source_package_has_its_tests() -> None:
    packages = {path.name for path in (SOURCE / "rookery").iterdir() if path.is_dir() and any(path.glob("[a-z]*.py"))}
    tested = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    assert packages - tested == set()
