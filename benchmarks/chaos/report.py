"""Reports for people, and one JSON line for machines."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence

from benchmarks.chaos.run import Report
from benchmarks.chaos.stage import Verdict


def table(report: Report) -> str:
    """Faults and recoveries, exits, and what differs from the oracle."""
    return "\n".join([*_head(report), *_faults(report), *_exits(report), *_verdict(report)])


def _head(report: Report) -> Iterator[str]:
    yield ""
    yield f"{report.client}, {report.mode}, seed {report.seed}: {len(report.struck)} faults in {report.seconds:.0f} s"
    thin = sorted({n for n, _ in report.replication.values()})
    yield "seconds: " + ", ".join(f"{name} {seconds:.0f}" for name, seconds in report.phases.items())
    yield f"topics kept {thin} times, among them __consumer_offsets and __transaction_state"


def _faults(report: Report) -> Iterator[str]:
    yield f"{'fault':<52}{'times':>6}{'recovery, median':>18}{'max':>8}{'never':>7}"
    for kind, times in sorted(report.recoveries().items()):
        known = [t for t in times if t is not None]
        median, most = (f"{statistics.median(known):.1f} s", f"{max(known):.1f} s") if known else ("-", "-")
        yield f"{kind:<52}{len(times):>6}{median:>18}{most:>8}{len(times) - len(known):>7}"
    for each in report.struck:
        if each.recovered_s is None:
            yield f"  fault {each.fault.number} ({each.fault.kind}) at {each.at_s:.0f} s: behind {each.behind}"


def _exits(report: Report) -> Iterator[str]:
    yield f"workers started {report.starts} times; exit codes {report.exit_codes}; at the end {report.last_exits}"
    for text in [*report.unexpected, *report.trouble]:
        yield f"  UNEXPECTED {text}"
    if report.put_out_alone:
        yield f"static members that the group put out though there was no second process: {report.put_out_alone}"
    first = sum(a is not None for a, _, _ in report.twins)
    second = sum(b is not None for _, b, _ in report.twins)
    if report.twins:
        yield f"second processes: {len(report.twins)}; the first ended {first} times, the second {second},"
        yield f"  and {report.put_out} survivors were put out soon after"
        yield f"  said: {report.twins[0][2]}"


def _verdict(report: Report) -> Iterator[str]:
    tally = report.tally
    yield (
        f"{report.records} records, {tally.outputs} outputs: {tally.lost} lost, {tally.doubled} doubled, "
        f"{tally.strange} strange, {tally.out_of_order} out of order, {tally.different} different"
    )
    yield (
        f"{tally.state_keys_compared} keys' models compared byte for byte: {tally.state_mismatches} differ; "
        f"{tally.clock_mismatches} times of a last record differ"
    )
    yield from (f"  {text}" for text in tally.examples)
    yield "GOOD" if report.good else "NOT GOOD"


def verdict_lines(verdict: Verdict) -> list[str]:
    """A scenario's findings."""
    word = {True: "GOOD", False: "NOT GOOD", None: "NOT SHOWN"}[verdict.good]
    return ["", f"{verdict.name}: {word}", *(f"  {text}" for text in verdict.said)]


def line(reports: Sequence[Report], verdicts: Sequence[Verdict]) -> str:
    """The last line: everything as JSON."""
    good = all(report.good for report in reports) and all(verdict.good is not False for verdict in verdicts)
    runs = [report.summary() for report in reports]
    return json.dumps({"good": good, "runs": runs, "scenarios": [verdict.summary() for verdict in verdicts]})
