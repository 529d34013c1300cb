"""Reading topics: what to read is decided on the driver, tasks fetch ranges of offsets as Arrow columns."""
