"""Arithmetic with equal bits on every CPU: compiled scalar loops, own exp, log and tanh, counter-based random draws."""
