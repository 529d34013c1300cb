"""Writes src/rookery/client/sync/admin.py: the `Admin` of `rookery.client.admin`, method by method, without `await`.

    python scripts/sync_admin.py            write the file
    python scripts/sync_admin.py --check    exit with 1 if it is not up to date

Signatures and texts are taken from the sources of the classes that the asynchronous `Admin` is made of, so that editors
and type checkers see real methods. The output is formatted as `ruff format` would.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from rookery.client.admin.admin import Admin

TARGET = Path(__file__).parent.parent / "src" / "rookery" / "client" / "sync" / "admin.py"
LINE_LENGTH = 120
Method: TypeAlias = ast.AsyncFunctionDef | ast.FunctionDef

HEADER = '''"""`Admin` without `await`: the same methods as `rookery.client.admin.Admin`, which wait for their results.

Written by scripts/sync_admin.py from the asynchronous class: change that, and run the script. Callbacks that are given
to methods run on the clients' own thread.
"""

'''

CLASS = '''

class Admin:
    """`config` has Kafka's keys: `Admin({"bootstrap.servers": "localhost:9092"})`. Safe to use from many threads."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self._loop = shared_loop()
        self._admin = AsyncAdmin(config)

    def __enter__(self) -> Self:
        """Connect to one broker: that nobody is there is told at once and not retried."""
        self._loop.run(self._admin.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
'''
CLASS_NAMES = {"Mapping": "collections.abc", "TracebackType": "types", "Self": "typing"}
OWN_IMPORTS = [
    "from rookery.client.admin.admin import Admin as AsyncAdmin",
    "from rookery.client.sync.loop import shared_loop",
]


def main() -> int:
    text = generate()
    if "--check" in sys.argv[1:]:
        return 0 if TARGET.read_text(encoding="utf-8") == text else 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


def generate() -> str:
    methods: list[str] = []
    imports: dict[str, str] = dict(CLASS_NAMES)
    for module, method in _methods():
        methods.append(_method(method))
        known = _importable(module)
        imports |= {name: known[name] for name in _names(method) if name in known}
    return HEADER + _imports(imports) + CLASS + "".join(methods)


def _methods() -> Iterator[tuple[ModuleType, Method]]:
    """The public methods of the parts, in the order of the parts, and of what is written in them."""
    seen: set[str] = set()
    for part in reversed(Admin.__mro__[:-1]):
        module = sys.modules[part.__module__]
        (definition,) = [
            node
            for node in ast.parse(inspect.getsource(module)).body
            if isinstance(node, ast.ClassDef) and node.name == part.__name__
        ]
        for node in definition.body:
            is_method = isinstance(node, Method) and not node.name.startswith("_") and not node.decorator_list
            if isinstance(node, Method) and is_method and node.name not in seen:
                seen.add(node.name)
                yield module, node


def _importable(module: ModuleType) -> dict[str, str]:
    """What a module's annotations and defaults may name, and where that is."""
    found: dict[str, str] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {alias.name: node.module for alias in node.names}
        elif isinstance(node, ast.ClassDef):
            found[node.name] = module.__name__
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: module.__name__ for target in targets if isinstance(target, ast.Name)}
    return found


def _names(method: Method) -> set[str]:
    written = [*ast.walk(method.args), *(ast.walk(method.returns) if method.returns is not None else ())]
    return {node.id for node in written if isinstance(node, ast.Name)}


def _imports(names: dict[str, str]) -> str:
    modules: dict[str, list[str]] = {}
    for name, module in names.items():
        modules.setdefault(module, []).append(name)
    lines = [_import(module, of_module) for module, of_module in modules.items()] + OWN_IMPORTS
    standard = sorted(line for line in lines if not line.startswith("from rookery"))
    ours = sorted((line for line in lines if line.startswith("from rookery")), key=lambda line: line.split()[1])
    return "\n".join([*standard, "", *ours]) + "\n"


def _import(module: str, names: list[str]) -> str:
    # Constants come first, then classes: the order that ruff keeps.
    ordered = sorted(names, key=lambda name: (not name.isupper(), name))
    return _call(f"from {module} import ", ordered, "", indent=0, brackets=("", ""))


def _method(method: Method) -> str:
    returns = ast.unparse(method.returns) if method.returns is not None else "None"
    lines = [_call(f"    def {method.name}", _parameters(method.args), f" -> {returns}:", indent=4)]
    docstring = ast.get_docstring(method, clean=False)
    if docstring is not None:
        lines.append(f'        """{docstring}"""')
    if isinstance(method, ast.FunctionDef):
        assert len(method.args.args) == 1, "the loop calls plain methods without arguments"
        return "\n" + "\n".join([*lines, f"        return self._loop.call(self._admin.{method.name})"]) + "\n"
    asked = _call(f"self._admin.{method.name}", _arguments(method.args), "", indent=8)
    before = "self._loop.run" if returns == "None" else "return self._loop.run"
    line = f"        {before}({asked})"
    if "\n" in asked or len(line) > LINE_LENGTH:
        inner = _call(f"            self._admin.{method.name}", _arguments(method.args), "", indent=12)
        line = f"        {before}(\n{inner}\n        )"
    return "\n" + "\n".join([*lines, line]) + "\n"


def _parameters(arguments: ast.arguments) -> list[str]:
    defaults = [None] * (len(arguments.args) - len(arguments.defaults)) + list(arguments.defaults)
    written = [_parameter(argument, default) for argument, default in zip(arguments.args, defaults, strict=True)]
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return [*written, *(["*"] if arguments.kwonlyargs else []), *(_parameter(*each) for each in keywords)]


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    annotated = argument.arg if argument.annotation is None else f"{argument.arg}: {ast.unparse(argument.annotation)}"
    return annotated if default is None else f"{annotated} = {ast.unparse(default)}"


def _arguments(arguments: ast.arguments) -> list[str]:
    positional = [argument.arg for argument in arguments.args[1:]]
    return positional + [f"{argument.arg}={argument.arg}" for argument in arguments.kwonlyargs]


def _call(before: str, items: list[str], after: str, *, indent: int, brackets: tuple[str, str] = ("(", ")")) -> str:
    """On one line if it fits; else all items on the next line; else each on a line of its own."""
    line = f"{before}{brackets[0]}{', '.join(items)}{brackets[1]}{after}"
    if len(line) <= LINE_LENGTH:
        return line
    inside, outside = " " * (indent + 4), " " * indent
    packed = inside + ", ".join(items)
    body = packed if len(packed) <= LINE_LENGTH and brackets[0] else "\n".join(f"{inside}{item}," for item in items)
    return f"{before}(\n{body}\n{outside}){after}"


if __name__ == "__main__":
    sys.exit(main())
