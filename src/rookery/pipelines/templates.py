"""The pipelines that `rookery pipelines init` writes: YAML files beside this module, with the name to be put in."""

from pathlib import Path
from typing import Final

_DIRECTORY: Final = Path(__file__).parent / "template_files"
_PLACEHOLDER: Final = "PIPELINE_NAME"


def render(template: str, name: str) -> str:
    return (_DIRECTORY / f"{template}.yaml").read_text().replace(_PLACEHOLDER, name)
