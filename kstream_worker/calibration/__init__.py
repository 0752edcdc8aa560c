"""What a configured detector does on history: its true rate of alarms, its delays, and settings that follow.

Nothing here joins a group, writes to a bus or touches state. Banks and decoders come in through `ports`, so that what
is measured is what a worker runs; whoever composes the command knows the concrete ones.
"""
