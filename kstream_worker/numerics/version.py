"""The version of the arithmetic. Raise it with any change after which equal samples may give other bits of state.

Models restored from snapshots replay the records since: they must be computed as they were.
"""

ARITHMETIC = "1"
