"""A broker, the processes that share its input, and what happens to them: one action after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from sim_oracle import Rejected, Result, published, state_of, undisturbed
from sim_parts import GROUP, STATE, Hazards, broker_of, simulated_parts, worker_of
from sim_scenario import Action, Scenario
from sim_script import TOPIC, Playback, write
from sim_watch import Found, StateWatch

from kstream_worker.bus.fake import CommitFault, Faults, ForeignTransaction, SimulatedCrash
from kstream_worker.errors import Fatal, Retry
from kstream_worker.records import ChangeKind, Messages, Outcome, TopicPartition
from kstream_worker.worker.loop import Worker
from kstream_worker.worker.task import Task

_MOST_ROUNDS = 1500
_ROOM = 1_000_000  # for all snapshots of a commit
_DEATHS = 3  # of processes that tried a record alone


class World:
    """A simulation of one scenario.

    Args:
        scenario: the configuration.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.broker = broker_of(scenario)
        self.script = write(scenario.script)
        self.playback = Playback(self.script, self.broker)
        self.hazards = Hazards()
        self.watch = StateWatch(self.broker, scenario)
        self.workers: dict[str, Worker] = {}
        self.arls = dict.fromkeys(scenario.identities, scenario.arls[0])
        self.arl = scenario.arls[0]
        self.trial_deaths: Counter[tuple[int, int]] = Counter()  # by partition and offset tried
        self._aimed: CommitFault | None = None
        self._twins: list[tuple[str, Worker]] = []
        self._foreign: dict[int, ForeignTransaction] = {}

    def run(self, actions: Sequence[Action]) -> None:
        """Do all of it, then let things settle, and compare.

        Raises:
            Found: something is not as it must be.
        """
        with simulated_parts(self.scenario, self.hazards):
            for action in actions:
                self.act(action)
            self._settle()
            first = self._result()
            self._restart_all()
            again = self._result()
        rejected = self._rejected()
        wanted = undisturbed(self.scenario.script.seed * 8, self.watch.arls(), rejected)
        compare(wanted, first, "")
        compare(wanted, again, "after another restart: ")

    def act(self, action: Action) -> None:
        """Do one thing."""
        name, *arguments = action
        getattr(self, "_do_" + name.replace(" ", "_"))(*arguments)
        self.watch.look()

    # -- actions --

    def _do_turn(self, identity: str, steps: int) -> None:
        for _ in range(steps):
            self._turn(identity)

    def _do_feed(self, partition: int, count: int) -> None:
        self.playback.feed(partition, count)

    def _do_commit_fault(self, fault: str, count: int) -> None:
        self.broker.faults.on_commit(*[CommitFault(fault)] * count)

    def _do_aim(self, fault: str) -> None:
        self._aimed = CommitFault(fault)

    def _do_crash(self, identity: str, point: Any, ahead: int) -> None:
        self._plan(identity, point, ahead, SimulatedCrash(point))

    def _do_error(self, identity: str, point: Any, ahead: int) -> None:
        self._plan(identity, point, ahead, Retry("no answer in time"))

    def _do_kill(self, identity: str) -> None:
        self._lose(identity)

    def _do_rebalance(self, identity: str, kind: str, unsettled: int) -> None:
        faults = self.broker.faults
        poll = faults.calls("poll", identity) + 1
        faults.rebalance(poll, ChangeKind(kind), identity=identity, unsettled_polls=unsettled)

    def _do_evict(self, identity: str) -> None:
        self.broker.evict(GROUP, identity)

    def _do_lose(self, partition: int) -> None:
        """The group gives a partition to nobody."""
        self.broker.group(GROUP).lose(TopicPartition(TOPIC, partition))

    def _do_model(self, identity: str) -> None:
        self.hazards.broken.add(identity)

    def _do_stop(self, identity: str, leave: bool) -> None:
        worker = self.workers.pop(identity, None)
        if worker is None:
            return
        worker.request_stop()
        try:
            worker._drain()
            worker._source.close(leave=leave, timeout_s=1.0)
            worker._close("stopped")
        except SimulatedCrash:
            self._bury_trials(worker._tasks.values())

    def _do_compact(self) -> None:
        """A reader that is under way could miss a deletion that is removed at once, which no broker does."""
        if not any(worker._opener.at_work for worker in self.workers.values()):
            self.broker.compact(STATE)

    def _do_truncate(self) -> None:
        """Retention of what nobody needs any more."""
        for partition, start in self.watch.replay_from.items():
            self.broker.truncate(TOPIC, partition, start)

    def _do_open(self, partition: int) -> None:
        if partition not in self._foreign:
            transaction = self._foreign[partition] = self.broker.transaction()
            transaction.append(STATE, partition, b"\x07foreign", b"not ours")

    def _do_close(self, partition: int, commit: bool) -> None:
        transaction = self._foreign.pop(partition, None)
        if transaction is not None:
            (transaction.commit if commit else transaction.abort)()

    def _do_arl(self, identity: str, choice: int) -> None:
        self.arls[identity] = self.scenario.arls[choice]

    def _do_sleep(self, seconds: float) -> None:
        self.broker.clock.sleep(seconds)

    def _do_twin(self, identity: str) -> None:
        """A second process of the same name: the first must end, and do no harm before."""
        worker = self.workers.pop(identity, None)
        if worker is not None:
            self._bury_trials(worker._tasks.values())
            self._twins.append((identity, worker))

    # -- processes --

    def _turn(self, identity: str) -> None:
        try:
            worker = self.workers.get(identity) or self._begin(identity)
            worker._guarded_step()
        except SimulatedCrash:
            self._lose(identity)
        except Fatal as error:
            raise Found(f"{identity} ended: {error}") from error
        self._turn_twins(identity)

    def _turn_twins(self, identity: str) -> None:
        for name, worker in [twin for twin in self._twins if twin[0] == identity]:
            try:
                worker._guarded_step()
            except (SimulatedCrash, Fatal):  # told that another process has its name
                self._twins.remove((name, worker))

    def _begin(self, identity: str) -> Worker:
        worker = worker_of(self.scenario, self.broker, identity, self.arls[identity], self.scenario.poll_sizes)
        drop = worker._drop

        def drop_and_count(partitions: Iterable[TopicPartition], *, healing: bool = False) -> None:
            gone = list(partitions)
            if healing:  # what else goes moves on, and the process lives
                self._bury_trials(worker._tasks[tp] for tp in gone if tp in worker._tasks)
            drop(gone, healing=healing)

        worker._drop = drop_and_count  # type: ignore[method-assign]
        commit = worker._writer.commit

        def commit_that_is_aimed_at(messages: Sequence[Messages], *rest: Any, **more: Any) -> Outcome:
            """A fault that was aimed hits the first commit that deletes a snapshot."""
            if self._aimed and any(None in column.values for column in messages if column.partition.topic == STATE):
                self.broker.faults.on_commit(self._aimed)
                self._aimed = None
            return commit(messages, *rest, **more)

        worker._writer.commit = commit_that_is_aimed_at  # type: ignore[method-assign]
        worker._start()
        self.workers[identity] = worker
        return worker

    def _lose(self, identity: str) -> None:
        worker = self.workers.pop(identity, None)
        if worker is not None:
            self._bury_trials(worker._tasks.values())

    def _bury_trials(self, tasks: Iterable[Task]) -> None:
        """What was tried when a process died or models failed may be why; a later one cannot tell."""
        self.trial_deaths.update((task.partition.partition, task.ledger.trial) for task in tasks)

    def _plan(self, identity: str, point: Any, ahead: int, error: BaseException) -> None:
        faults = self.broker.faults
        faults.raise_at(point, faults.calls(point, identity) + ahead, error, identity=identity)

    # -- the end --

    def _settle(self) -> None:
        """No more trouble, but for records that no process survives; all of the input."""
        self.hazards.broken.clear()
        self._aimed = None
        self.broker.faults = Faults()
        for partition in list(self._foreign):
            self._do_close(partition, commit=False)
        self.playback.feed_all()
        self._work_off()

    def _restart_all(self) -> None:
        """Stop all processes in good order, and start them again."""
        for identity in self.scenario.identities:
            self._do_stop(identity, leave=True)
        self.watch.look()
        self.watch.all_is_snapshotted()
        self._work_off()

    def _work_off(self) -> None:
        for number in range(1, _MOST_ROUNDS):
            if number % 100 == 0:
                self.broker.clock.sleep(5.0)  # a membership that was refused is kept for a while
            for identity in self.scenario.identities:
                self._turn(identity)
            self.watch.look()
            if self._idle():
                return
        raise Found("the processes do not get to the end of the input")

    def _idle(self) -> bool:
        """Whether each partition is open in one process, which has read and committed all there is."""
        for tp in self.broker.partitions(TOPIC):
            owners = [worker for worker in self.workers.values() if tp in worker._tasks]
            if len(owners) != 1:
                return False
            worker, end = owners[0], self.broker.log(tp).end
            waits = worker._committer.holds(tp) or worker._trials.holds(tp) or tp in worker._marks
            if waits or worker._source.position(tp) != end:
                return False
        return True

    def _result(self) -> Result:
        states = {
            tp.partition: state_of(task) for worker in self.workers.values() for tp, task in worker._tasks.items()
        }
        self._check_boards()
        self._check_spans()
        return Result(published(self.broker), states)

    def _check_spans(self) -> None:
        """Nobody has to read more again than was asked for, and what is read between two commits."""
        if self.scenario.max_bytes < _ROOM:
            return
        for identity, worker in self.workers.items():
            span = sum(task.ledger.span() for task in worker._tasks.values())
            if span > self.scenario.replay_records:
                raise Found(
                    f"{identity} would have to read {span} records again, of at most {self.scenario.replay_records}"
                )

    def _check_boards(self) -> None:
        for identity, worker in self.workers.items():
            shown = worker._board.alarms()  # type: ignore[attr-defined]
            listed = {(alarm["key"], alarm.get("silent_since")) for alarm in shown["alarms"]}
            wanted = {
                (key.decode(), task.ledger.silent.since.get(key))
                for task in worker._tasks.values()
                for key in [*task.ledger.alarms, *task.ledger.silent.since]
            }
            if listed != wanted:
                raise Found(f"{identity} shows {sorted(listed)} in alarm, and {sorted(wanted)} are")

    def _rejected(self) -> Rejected:
        """What was given up; records that harm nobody only where deaths at their trial can be taken for their doing."""
        rejected = self.watch.rejected()
        for place in ((p, offset) for p, offsets in enumerate(rejected) for offset in offsets):
            if self.trial_deaths[place] < _DEATHS and place not in self.script.poison:
                raise Found(f"record {place} was given up after {self.trial_deaths[place]} deaths")
        return rejected


def compare(wanted: Result, found: Result, when: str) -> None:
    """Hold two results against each other.

    Raises:
        Found: they differ; says where first.
    """
    for place in sorted({*wanted.published, *found.published}):
        mine, right = found.published.get(place, []), wanted.published.get(place, [])
        if mine != right:
            raise Found(f"{when}{place[0]}[{place[1]}]: {_first_difference(right, mine)}")
    for partition, state in wanted.states.items():
        mine_too = found.states.get(partition)
        if mine_too != state:
            raise Found(f"{when}state of partition {partition}: {_explain(state, mine_too)}")


def _first_difference(wanted: list[Any], found: list[Any]) -> str:
    index = next((i for i, (a, b) in enumerate(zip(wanted, found, strict=False)) if a != b), None)
    if index is None:
        index = min(len(wanted), len(found))
    at = [lines[index] if index < len(lines) else "the end" for lines in (wanted, found)]
    return f"record {index} of {len(found)} (wanted {len(wanted)}) is {at[1]}, where {at[0]} is wanted"


def _explain(wanted: Any, found: Any) -> str:
    if found is None:
        return "nobody has it"
    if wanted.keys.keys() != found.keys.keys():
        return f"live keys are {sorted(found.keys)}, where {sorted(wanted.keys)} are wanted"
    for key, state in wanted.keys.items():
        if found.keys[key] != state:
            return f"key {key!r} is {found.keys[key]}, where {state} is wanted"
    has, wants = ((state.clock_ms, state.closed, dict(state.silent)) for state in (found, wanted))
    return f"clock, whether it is full, and silent keys are {has}, where {wants} are wanted"
