"""The parts of an environment that change counts without any change of Rookery."""

import platform
from importlib import metadata

# The libraries whose code runs in every request.
_LIBRARIES = ("crc32c", "uvloop")


def describe(counter: str) -> dict[str, str]:
    """Names and values; counts are comparable as they are where all of them are equal."""
    library, version = platform.libc_ver()
    return {
        "counter": counter,
        "machine": platform.machine(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "libc": f"{library} {version}",
        **{name: _version(name) for name in _LIBRARIES},
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"
