"""The only layer that knows the order of the stages: poll, decode, score, encode, commit."""
