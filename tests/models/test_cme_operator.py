import numpy as np
import pytest
import reference_vectors as vectors

from kstream_worker.models.cme import intervals, judge, kernel, operator, worth
from kstream_worker.models.cme.layout import ATOMS, RLS, SGD, Operator, Work, lay_out, make_work
from kstream_worker.models.cme.triangle import append_row, delete_row, row_start, solve_lower
from kstream_worker.numerics.jit import jit


@jit
def drop(op: Operator, row: np.ndarray, state: np.ndarray, i: int, w: Work) -> None:
    operator.delete_atom(op, row, state, i, w)


@jit
def measure(op: Operator, row: np.ndarray, m: int, w: Work, out: np.ndarray) -> None:
    for i in range(m):
        out[i] = worth.contribution(op, row, m, i, w)


@jit
def remove_and_project(lower: np.ndarray, m: int, i: int, c: np.ndarray, s: np.ndarray, k: np.ndarray) -> None:
    delete_row(lower, m, i, c, s)
    solve_lower(lower, m - 1, k, 0, k)


@jit
def grow(lower: np.ndarray, gram: np.ndarray, p: np.ndarray) -> None:
    for i in range(len(gram)):
        rest = gram[i, i] - solve_lower(lower, i, gram[i], 0, p)
        append_row(lower, i, p, rest)


class Run:
    """One operator in the bank's walk over given pairs, nothing scaled, and what a dense computation needs of it."""

    def __init__(self, x_dims: int, y_dims: int, sigma: tuple[float, float], epsilon: float, room: int, **settings):
        judged, limits = judge.state_size(x_dims, y_dims), intervals.PER_VALUE * y_dims
        at = np.cumsum([0, 2 * x_dims, 2 * y_dims, 2, 2 * y_dims, y_dims, judged, limits]).tolist()
        extra = 2 * y_dims + judge.USUAL_ROWS
        self.op = lay_out(at[7], x_dims, y_dims, room, extra=extra, **settings)
        self.sigma, self.plan = sigma, kernel.Plan(20, 10**9, epsilon, 1.0, 1.0, 0.05, *at, self.op.end)
        self.floats, self.ints = np.zeros((1, self.op.end)), np.zeros((1, kernel.INTS), dtype=np.int64)
        self.row, self.state = self.floats[0], self.ints[0, kernel.OPERATOR :]
        self.row[x_dims : 2 * x_dims] = 1.0
        self.row[at[1] + y_dims : at[2]] = 1.0
        self.row[at[2] : at[3]] = [-0.5 / s**2 for s in sigma]
        self.ints[0, kernel.PHASE] = kernel.ARMED
        self.scratch, self.work = kernel.make_scratch(self.op), make_work(self.op)

    def feed(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Atoms in use, innovation, HS norm, each before the pair."""
        n, dy = len(x), self.op.y_dims
        first = kernel.Y_COLUMNS * dy
        values, scores = np.full((n, first + kernel.FIXED_COLUMNS), np.nan), np.full((n, judge.SCORES), np.nan)
        slots = np.zeros(n, dtype=np.int64)
        end = kernel.walk(
            0, self.plan, self.op, self.floats, self.ints, slots, x, y, self.scratch, self.work, values, scores
        )
        assert end == n
        return values[:, [first + 1, first, first + 2]]

    @property
    def m(self) -> int:
        return int(self.state[ATOMS])

    def atoms(self) -> tuple[np.ndarray, np.ndarray]:
        op, room = self.op, self.op.room
        x = self.row[op.at_x : op.at_y].reshape(op.x_dims, room)[:, : self.m].T
        return x, self.row[op.at_y : op.at_lx].reshape(op.y_dims, room)[:, : self.m].T

    def factor(self, at: int) -> np.ndarray:
        lower = np.zeros((self.m, self.m))
        lower[np.tril_indices(self.m)] = self.row[at : at + row_start(self.m)]
        return lower

    def matrix(self) -> np.ndarray:
        rows = self.op.room + self.op.extra
        return self.row[self.op.at_matrix :][: rows * self.op.room].reshape(rows, self.op.room)

    def whiten(self, at: int, points: np.ndarray, sigma: float, side: int) -> np.ndarray:
        lower = self.factor(at)
        kept = np.diag(lower) > 0.0
        values = np.zeros((self.m, len(points)))
        values[kept] = np.linalg.solve(lower[np.ix_(kept, kept)], gaussian(self.atoms()[side][kept], points, sigma))
        return values

    def embedding(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """(U phi(x_i))(y_j), y_j by rows."""
        p = self.whiten(self.op.at_lx, x, self.sigma[0], 0)
        q = self.whiten(self.op.at_ly, y, self.sigma[1], 1)
        return q.T @ self.matrix()[: self.m, : self.m] @ p


def gaussian(a: np.ndarray, b: np.ndarray, sigma: float) -> np.ndarray:
    return np.exp(np.square(a[:, None] - b[None]).sum(axis=2) / (-2.0 * sigma**2))


def pairs(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    y = np.sin(2.0 * x[:, :1]) + 0.3 * rng.normal(size=(n, 1))
    return x, y


CASES = [("000_cme", i) for i in range(len(vectors.load("000_cme")["input"]["cases"]))] + [("000_cme_repeated", None)]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_steps_match_the_reference(name: str, case: int | None) -> None:
    content = vectors.load(name)
    given, expected = content["input"], content["expected"]
    if case is not None:
        given, expected = given["cases"][case], expected["cases"][case]
    x, y = np.array(given["x"]), np.array(given["y"])
    run = Run(
        x.shape[1],
        y.shape[1],
        (given["sigma_x"], given["sigma_y"]),
        given["epsilon"],
        40,
        gain=SGD,
        eta=given["eta"],
        decay=given["lam"],
    )
    out = run.feed(x, y)
    assert [*np.diff(out[:, 0]).astype(int), run.m - int(out[-1, 0])] == expected["admitted"]
    vectors.assert_close(out[:, 1], expected["innovation_squared"], content["rtol"])
    vectors.assert_close(out[1:, 2], expected["hs_norm_after"][:-1], content["rtol"])
    for atoms, points in zip(run.atoms(), (x, y), strict=True):
        assert np.array_equal(atoms, points[expected["dictionary_indices"]])
    queries = np.array(given["query_x"]), np.array(given["query_y"])
    vectors.assert_close(run.embedding(*queries), expected["embedding_at_query"], content["rtol"])


def test_least_squares_equal_the_batch_solution_of_the_same_features() -> None:
    x, y = pairs(300)
    run = Run(2, 1, (1.0, 0.7), 0.05, 40, gain=RLS, ridge=0.5)
    run.feed(x[:60], y[:60])
    run.plan = run.plan._replace(epsilon=9.0)  # no atoms any more: the features stay
    m = run.m
    assert 8 < m <= 40
    before = run.matrix()[[*range(m), 40], :m].copy()
    a = np.linalg.inv(run.row[run.op.at_cov :].reshape(40, 40)[:m, :m])
    run.feed(x[60:], y[60:])
    p = run.whiten(run.op.at_lx, x[60:], 1.0, 0)
    q = np.vstack((run.whiten(run.op.at_ly, y[60:], 0.7, 1), y[60:].T))
    expected = np.linalg.solve(a + p @ p.T, (before @ a + q @ p.T).T).T
    assert np.abs(run.matrix()[[*range(m), 40], :m] - expected).max() < 1e-7
    assert run.m == m


def test_a_deleted_atom_leaves_the_projection_of_the_operator() -> None:
    x, _ = pairs(200)
    y = np.roll(x, 1, axis=0)
    for i in (0, 5, 19):
        run = Run(2, 2, (0.7, 0.6), 0.05, 20, gain=SGD)
        run.feed(x, y)
        m = run.m
        assert m == 20
        worths = np.zeros(m)
        measure(run.op, run.row, m, run.work, worths)
        stay = np.arange(m) != i
        ax, ay = (atoms.copy() for atoms in run.atoms())
        gx, gy = gaussian(ax, ax, 0.7), gaussian(ay, ay, 0.6)
        dense = np.linalg.solve(run.factor(run.op.at_ly).T, run.matrix()[:m, :m])
        dense = dense @ np.linalg.inv(run.factor(run.op.at_lx))
        left = np.linalg.solve(gy[np.ix_(stay, stay)], gy[stay])
        right = np.linalg.solve(gx[np.ix_(stay, stay)], gx[stay])
        projected = left @ dense @ right.T
        lost = dense.copy()
        lost[np.ix_(stay, stay)] -= projected
        assert worths[i] == pytest.approx(np.sqrt(np.trace(lost.T @ gy @ lost @ gx)), rel=1e-6)
        drop(run.op, run.row, run.state, i, run.work)
        assert np.array_equal(run.atoms()[0], ax[stay])
        probe = x[:9] + 0.1, y[:9] - 0.1
        expected = gaussian(probe[1], ay[stay], 0.6) @ projected @ gaussian(ax[stay], probe[0], 0.7)
        assert np.abs(run.embedding(*probe) - expected).max() < 1e-7


def test_least_squares_forget_a_deleted_feature_as_if_it_had_never_been() -> None:
    x, y = pairs(200)
    run = Run(2, 1, (1.0, 0.7), 0.1, 20, gain=RLS, gamma=0.99)
    run.feed(x, y)
    m = run.m
    cov = run.row[run.op.at_cov :].reshape(20, 20)
    a = np.linalg.inv(cov[:m, :m])
    b = run.matrix()[[*range(m), 20], :m] @ a
    old = run.factor(run.op.at_lx)
    drop(run.op, run.row, run.state, 3, run.work)
    turn = np.linalg.solve(run.factor(run.op.at_lx), np.delete(old, 3, axis=0))  # new features from old
    assert np.abs(turn @ turn.T - np.eye(m - 1)).max() < 1e-9
    left = turn @ a @ turn.T
    assert np.abs(np.linalg.inv(cov[: m - 1, : m - 1]) - left).max() < 1e-7 * np.abs(a).max()
    expected = (b @ turn.T) @ np.linalg.inv(left)
    assert np.abs(run.matrix()[20, : m - 1] - expected[-1]).max() < 1e-7
    assert np.array_equal(cov, cov.T)
    assert not cov[m - 1].any()


def test_a_factor_survives_deletion_among_repeated_points() -> None:
    rng = np.random.default_rng(3)
    points = rng.normal(size=(7, 2))
    points = points[[0, 1, 0, 2, 1, 3, 0, 4, 5, 2, 6]]
    gram = gaussian(points, points, 1.0)
    for i in range(len(points)):
        lower = np.zeros(row_start(len(points)))
        grow(lower, gram, np.zeros(len(points)))
        rest = np.delete(np.delete(gram, i, 0), i, 1)
        k = np.delete(gaussian(points, rng.normal(size=(1, 2)), 1.0)[:, 0], i)
        features = k.copy()
        remove_and_project(lower, len(points), i, np.zeros(11), np.zeros(11), features)
        small = np.zeros((10, 10))
        small[np.tril_indices(10)] = lower[: row_start(10)]
        kept = np.delete(np.isin(np.arange(11), (0, 1, 3, 5, 7, 8, 10)), i)  # the first of equals, also when it goes
        assert np.array_equal(np.diag(small) > 0.0, kept)
        alive = np.ix_(kept, kept)
        assert np.abs(small @ small.T - rest)[alive].max() < 1e-12
        assert not small[:, ~kept].any()
        inside = k[kept] @ np.linalg.solve(rest[alive], k[kept])
        assert features[:10] @ features[:10] == pytest.approx(inside, abs=1e-9)
        assert not features[:10][~kept].any()


def test_a_full_dictionary_replaces_the_atom_that_holds_least() -> None:
    x, y = pairs(2000)
    run = Run(2, 1, (0.5, 0.3), 0.1, 24, gain=SGD)
    run.feed(x, y)
    assert run.m == 24
    assert run.state[3] > 0  # replaced
    held = run.row[run.op.at_worth : run.op.at_matrix]
    held[:] = 1.0
    least, turn = 7, 3
    held[[9, least, turn]] = 0.05, 0.05, 0.01  # that of atom 3 is measured anew first
    run.state[2] = turn
    before = [atoms.copy() for atoms in run.atoms()]
    run.feed(np.array([[3.5, -3.5]]), np.array([[4.0]]))
    stay = np.arange(24) != least
    assert np.array_equal(run.atoms()[0], np.vstack((before[0][stay], [[3.5, -3.5]])))
    assert held[23] == pytest.approx(0.2, rel=1e-3)  # eta: the pair is new on both sides
    for at, atoms, sigma in ((run.op.at_lx, run.atoms()[0], 0.5), (run.op.at_ly, run.atoms()[1], 0.3)):
        factor = run.factor(at)
        kept = np.diag(factor) > 0.0
        assert np.abs(factor @ factor.T - gaussian(atoms, atoms, sigma))[np.ix_(kept, kept)].max() < 1e-12
