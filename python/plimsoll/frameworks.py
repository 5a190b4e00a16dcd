"""What a script has told its framework about memory, in Plimsoll's options."""

import sys


def options():
    """Of TensorFlow: set_memory_growth is memory_growth, and a GPU's memory_limit is the budget there."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or not hasattr(tensorflow, "config"):
        return {}
    found = {}
    for gpu in tensorflow.config.list_physical_devices("GPU"):
        if _asked(tensorflow.config.experimental.get_memory_growth, gpu):
            found["memory_growth"] = True
        limits = [part.memory_limit for part in _asked(tensorflow.config.get_logical_device_configuration, gpu) or ()]
        if len(limits) == 1 and limits[0]:
            found["budget"] = f"{int(limits[0])}MiB"
    return found


def _asked(question, device):
    try:
        return question(device)
    except (ValueError, RuntimeError):  # nothing was set for this device
        return None
