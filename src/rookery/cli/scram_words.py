"""Parses the mechanisms and iterations of SCRAM users. Pure."""

from collections.abc import Sequence

from rookery.base.errors import ConfigError
from rookery.security.scram_credentials import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism


def parse_mechanisms(texts: Sequence[str]) -> list[ScramMechanism]:
    """Return the mechanisms in the order of their names, each once; SCRAM-SHA-512 if there is none."""
    return sorted({parse_mechanism(text) for text in texts}) or [ScramMechanism.SCRAM_SHA_512]


def parse_mechanism(text: str) -> ScramMechanism:
    """Return the mechanism with a name as `SCRAM-SHA-512` or `sha-512`, in any case."""
    name = text.upper().replace("_", "-")
    found = ScramMechanism.of_name(name) or ScramMechanism.of_name(f"SCRAM-{name}")
    if found is None:
        known = ", ".join(each.mechanism_name for each in ScramMechanism)
        raise ConfigError(f"--mechanism: '{text}' is not one of {known}")
    return found


def check_iterations(iterations: int) -> int:
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ConfigError(f"--iterations is {iterations}: it must be from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    return iterations
