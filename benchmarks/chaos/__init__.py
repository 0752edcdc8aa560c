"""Chaos on real brokers: `python -m benchmarks.chaos`; what must hold is in `docs/architecture.md`.

    arena      three brokers, topics, the worker's configuration
    traffic    records with changes, silence, tombstones, rejects, gaps: produced while faults strike
    workers    real `kstream-worker run` processes under a supervisor that restarts what died
    faults     what strikes whom and when, drawn from a seed; inject: how it is done
    watch      committed positions over time, from which recovery times come
    oracle     one undisturbed worker on the fake bus, fed with the same records at the same offsets
    compare    outputs and final state of both, key by key
    run        all of it; report: as a table and as JSON

Scenarios with a verdict each: bounce (static members), twins (one instance id, two processes), lost_input (retention),
lost_state (state topic cut or deleted), disk (full ones); stage is the worker that they drive by hand.
"""
