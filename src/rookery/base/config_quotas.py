"""The broker keys of quotas and throttles; see `config_key` for the columns of a row."""

from rookery.base.config_key import ConfigKey, ConfigType
from rookery.base.config_key import broker_row as _row

_INT = ConfigType.INT

QUOTA_ROWS: tuple[ConfigKey, ...] = (
    _row("controller.quota.window.num", _INT, 11, "Samples kept for the controller mutation quota.", minimum=1),
    _row("controller.quota.window.size.seconds", _INT, 1, "Length of one such sample.", minimum=1),
    _row("quota.window.num", _INT, 11, "Samples kept for client quotas.", minimum=1),
    _row("quota.window.size.seconds", _INT, 1, "Length of one client quota sample.", minimum=1),
)
