"""Files and standard streams as a bus: JSON Lines or CSV in, JSON Lines out, exactly once without a broker.

Each input file is one partition; the offset of a record is the byte at which its line starts, so a restart seeks at
once. A commit appends to the output files, syncs them, and then records input positions, output lengths and what goes
to the state topic in one SQLite transaction: only what that transaction counts is part of the output. What a crash left
behind it is cut off at the next start. The folder must be on a local disk: neither the lock nor the database is safe on
a network share.
"""

from kstream_worker.bus.files.bus import files_bus
from kstream_worker.bus.files.envelope import OutputRecord, read_output

__all__ = ["OutputRecord", "files_bus", "read_output"]
