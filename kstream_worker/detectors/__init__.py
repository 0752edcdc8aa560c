"""Change detectors: banks of keys that raise alarms at a stated false-alarm rate."""
