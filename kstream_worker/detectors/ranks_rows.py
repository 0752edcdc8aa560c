"""A row of the rank detector, laid out; and what follows from that: weights, scratch room, runs of a column."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors.bets import ONE_SIDED, TWO_SIDED
from kstream_worker.detectors.ranks_layout import (
    BLOCK_SUM,
    DEFAULTS,
    FACTORS,
    HEADER,
    HIDDEN_WEIGHT,
    LEVEL_BETS,
    LEVEL_HEADER,
    LEVEL_TERMS,
    LEVEL_WEIGHT,
    MAX_PERIODS,
    MAX_PRODUCT_DIMS,
    NO_DEPENDENCE,
    ONE_SIDED_LOCATORS,
    PROFILES,
    SEASON_SLOTS,
    SHORTEST_HISTORY,
    SLOTS_PER_PERIOD,
    SPIKE_BETS,
    SPIKE_WEIGHT,
    TAIL_ENTRIES,
    TERMS_PER_PERIOD,
    TRANSFORMS,
    TWO_SIDED_LOCATORS,
    UNITS,
    Layout,
    Options,
    Sizes,
    hidden_scores,
)
from kstream_worker.detectors.volatility import VOL_TERMS
from kstream_worker.detectors.whitening import AR_COV, AR_ORDER, AR_TERMS


def make_layout(dims: int, warmup: int, dependence: int, options: Options = DEFAULTS) -> Layout:
    """Lay out the row of a key of `dims` features."""
    return _lay_out(dims, warmup, dependence, options)[0]


def bytes_by_part(dims: int, warmup: int, dependence: int, options: Options = DEFAULTS) -> dict[str, int]:
    """Bytes of a key's row by what they are for; their sum is the size of the row."""
    return _lay_out(dims, warmup, dependence, options)[1]


def _lay_out(dims: int, warmup: int, dependence: int, options: Options) -> tuple[Layout, dict[str, int]]:
    sizes = PROFILES[options.profile]
    columns = _columns(dims, dependence, options)
    parts: dict[str, int] = {}
    at, bags = Cursor(8, parts), Cursor(2, parts)
    at.take(HEADER, "counters")
    seasons, preparation = _seasons(at, dims, options), _prepared(at, dims, dependence)
    remembered = _remembered(at, dims, sizes, options)
    union = at.here
    learned = _learned(at, dims, sizes)
    bets = _bets(at, columns)
    kept_as_ranks = _bags(bags, dims, sizes, columns["v_rows"])
    more = warmup * (dims + bool(options.periods)) - (at.here - union) - bags.here // 4
    at.take(max(0, more), "warm-up beyond the rest")
    length = remembered["length"]
    steps = bags.take(length * dims, "history")
    season_history = bags.take(dims * SEASON_SLOTS if options.season_auto else 0, "seasons")
    rooted, times = BLOCK_SUM + dims, BLOCK_SUM + 2 * dims
    parts["counters"] += 8 * times
    parts["history"] = parts.get("history", 0) + 8 * length
    layout = Layout(
        dims=dims,
        warmup=warmup,
        dependence=dependence,
        transform=TRANSFORMS[options.transform],
        union=union,
        floats=at.here,
        steps=steps,
        season_history=season_history,
        shorts=bags.here,
        rooted=rooted,
        times=times,
        ints=times + length,
        **columns,
        **seasons,
        **preparation,
        **remembered,
        **learned,
        **bets,
        **kept_as_ranks,
    )
    return layout, parts


def _columns(dims: int, dependence: int, options: Options) -> dict[str, int]:
    """The columns, their bets and the runs of these, by field of the layout."""
    radius = 1 if dims > 1 else 0
    fixed = dims + radius + (dims * (dims - 1) // 2 if 2 <= dims <= MAX_PRODUCT_DIMS else 0)
    two_sided = fixed + dims
    spike_count = dims if options.spikes else 0
    hidden_count = len(hidden_scores(dims))
    picks = 1 if hidden_count else 0
    level_count = 0 if dependence == NO_DEPENDENCE else dims
    level = two_sided + 1 + spike_count + picks
    R_spikes = two_sided * TWO_SIDED + ONE_SIDED
    R_hidden = R_spikes + spike_count * SPIKE_BETS
    R_level = R_hidden + picks * ONE_SIDED
    run_spikes = two_sided * TWO_SIDED_LOCATORS + ONE_SIDED_LOCATORS
    run_hidden = run_spikes + spike_count
    return {
        "fixed": fixed,
        "learned": two_sided,
        "spikes": two_sided + 1,
        "spike_count": spike_count,
        "hidden": two_sided + 1 + spike_count,
        "hidden_count": hidden_count,
        "level": level,
        "level_count": level_count,
        "columns": level + level_count,
        "payoffs": fixed + 1 + picks,
        "R_learned": two_sided * TWO_SIDED,
        "R_spikes": R_spikes,
        "R_hidden": R_hidden,
        "R_level": R_level,
        "bets": R_level + level_count * LEVEL_BETS,
        "run_learned": two_sided * TWO_SIDED_LOCATORS,
        "run_spikes": run_spikes,
        "run_hidden": run_hidden,
        "locators": run_hidden + picks * ONE_SIDED_LOCATORS,
        "v_rows": dims + radius,
    }


def _learned(at: Cursor, dims: int, sizes: Sizes) -> dict[str, int]:
    """The learned score, by field of the layout."""
    packed = sizes.atoms * (sizes.atoms + 1) // 2
    return {
        "atom_room": sizes.atoms,
        "cov": at.take(packed, "learned score"),
        "inverse": at.take_singles(packed, "learned score"),
        "weights": at.take(sizes.atoms, "learned score"),
        "duals": at.take_singles(sizes.atoms, "learned score"),
        "atoms": at.take_singles(sizes.atoms * dims, "learned score"),
        "h_scores": at.take_singles(sizes.learned, "learned bag"),
    }


def _bets(at: Cursor, columns: dict[str, int]) -> dict[str, int]:
    """Where what the bets need begins, and they and their runs, by field of the layout."""
    payoffs, candidates, levels = columns["payoffs"], columns["hidden_count"], columns["level_count"]
    locators = columns["locators"]
    return {
        "tails": at.take_singles(TAIL_ENTRIES * columns["spike_count"], "tails"),
        "fair_squares": at.take_singles(2 * payoffs, "payoffs"),
        "fair_former": at.take_singles(2 * payoffs, "payoffs"),
        "fair_sums": at.take_singles(2 * payoffs, "payoffs"),
        "fair_factors": at.take_singles(FACTORS * payoffs, "payoffs"),
        "short_means": at.take_singles(candidates, "candidates"),
        "long_means": at.take_singles(candidates, "candidates"),
        "R": at.take_singles(columns["bets"], "bets"),
        "values": at.take(columns["columns"], "bets"),
        "levels": at.take(LEVEL_HEADER + (LEVEL_TERMS * levels + 1) // 2 if levels else 0, "levels"),
        "run_product": at.take_singles(locators, "runs of bets"),
        "run_seq": at.take_singles(locators, "runs of bets"),
        "run_time": at.take(locators, "runs of bets"),
    }


def _bags(bags: Cursor, dims: int, sizes: Sizes, v_rows: int) -> dict[str, int]:
    """Rooms of the bags and where they begin, by field of the layout."""
    fields = {
        "v_room": sizes.bag,
        "h_room": sizes.learned,
        "s_room": sizes.slow,
        "v_bag": bags.take(v_rows * sizes.bag, "bag"),
        "h_bag": bags.take(dims * sizes.learned, "learned bag"),
        "t_ring": bags.take(dims * sizes.learned, "reference ring"),
        "s_bag": bags.take(dims * sizes.slow, "bag of means"),
    }
    bags.take(-bags.here % 4, "bag of means")  # the warm-up's samples may lie there, as float64
    return fields


def _seasons(at: Cursor, dims: int, options: Options) -> dict[str, int]:
    """The periods and where the state of seasons begins, by field of the layout."""
    periods = options.periods
    features = dims if periods else 0
    terms = 1 + TERMS_PER_PERIOD * len(periods) if periods else 0
    first, second, third = (*periods, 1, 1, 1)[:MAX_PERIODS]
    return {
        "period": first,
        "period_2": second,
        "period_3": third,
        "periods": len(periods),
        "season_auto": int(options.season_auto),
        "season_terms": terms,
        "slot_ms": max(1, min(periods) // SLOTS_PER_PERIOD) if periods else 1,
        "season_center": at.take(features, "seasons"),
        "season_scale": at.take(features, "seasons"),
        "season_cov": at.take(terms * (terms + 1) // 2, "seasons"),
        "season_coef": at.take(features * terms, "seasons"),
        "slot": at.take(features + bool(periods), "seasons"),
    }


def _prepared(at: Cursor, dims: int, dependence: int) -> dict[str, int]:
    """Where that begins which samples pass through before they are ranked, by field of the layout."""
    tested = 0 if dependence == NO_DEPENDENCE else dims
    return {
        "center": at.take(dims, "scales"),
        "scale": at.take(dims, "scales"),
        "raw_center": at.take(tested, "scales"),
        "raw_scale": at.take(tested, "scales"),
        "ring": at.take(tested * AR_ORDER, "autoregressions"),
        "coef": at.take(tested * AR_TERMS, "autoregressions"),
        "ar_cov": at.take(tested * AR_COV, "autoregressions"),
        "off": at.take(tested, "autoregressions"),
        "volatility": at.take(tested * VOL_TERMS, "autoregressions"),
        "last": at.take(tested, "choice of samples"),
        "held": at.take(tested, "choice of samples"),
    }


def _remembered(at: Cursor, dims: int, sizes: Sizes, options: Options) -> dict[str, int]:
    """Length of the history and room of the older samples, and where these begin, by field of the layout."""
    if not options.explained:
        return {"length": 0, "kept_room": 0, "origin": at.here, "history": at.here, "kept": at.here}
    length = sizes.history if dims <= 4 else max(sizes.history // 2, SHORTEST_HISTORY)
    kept = sizes.kept if dims <= 4 else sizes.kept - 8
    return {
        "length": length,
        "kept_room": kept,
        "origin": at.take(dims, "history"),
        "history": at.take_singles(length * dims, "history"),
        "kept": at.take_singles(kept * dims, "history"),
    }


def column_weights(layout: Layout) -> NDArray[np.float64]:
    """Weights of all columns, float64[columns]; those of all but levels sum to 1.

    One fifth: sizes of single samples, if asked for. One tenth: the pick, if there are candidates. Of the rest nine
    tenths: as `sample_weights`; one tenth: block means. Where only high coordinates pay, nine tenths are theirs, as any
    other score would pay for low ones too; 6 of a column's 14 bets are made then, which the weights make up for.
    Of a level: what all levels of a key share; the others then have the rest (`ranks_kernel.largest_column`).
    """
    dims = layout.dims
    weights = np.zeros(layout.columns)
    if layout.upward:
        weights[:dims] = 0.9 / dims
        weights[layout.fixed : layout.learned] = 0.1 / dims
        weights *= TWO_SIDED / ONE_SIDED
        weights[layout.level :] = LEVEL_WEIGHT * LEVEL_BETS
        return weights
    spikes = SPIKE_WEIGHT if layout.spike_count else 0.0
    hidden = HIDDEN_WEIGHT if layout.hidden_count else 0.0
    rest = 1.0 - spikes - hidden
    own = sample_weights(layout, 0.9 * rest)
    weights[: layout.fixed] = own[:-1]
    weights[layout.fixed : layout.learned] = 0.1 * rest / dims
    weights[layout.learned] = own[-1]
    weights[layout.spikes : layout.hidden] = spikes / max(1, layout.spike_count)
    weights[layout.hidden : layout.level] = hidden
    weights[layout.level :] = LEVEL_WEIGHT
    return weights


def sample_weights(layout: Layout, share: float = 1.0) -> NDArray[np.float64]:
    """Weights of the fixed columns that score single samples, then of the learned one: float64[fixed + 1].

    Their sum is `share`.

    Coordinates and radius one half, products and the learned score a quarter each; without products three quarters
    and one quarter.
    """
    own = layout.v_rows
    products = layout.fixed - own
    weights = np.empty(layout.fixed + 1)
    weights[:own] = share * (0.5 if products else 0.75) / own
    weights[own : layout.fixed] = share * 0.25 / max(1, products)
    weights[-1] = share * 0.25
    return weights


def make_scratch(layout: Layout) -> tuple[NDArray[np.int16], NDArray[np.float64], NDArray[np.int64]]:
    """Room that compiled code works in: the sample in steps with its radius (behind it, room for a feature of the bag
    and a score's three coordinates), the matrix of the rows above, integers.
    """
    return (
        np.zeros(layout.dims + 1 + layout.v_room + 3, dtype=np.int16),
        np.zeros((UNITS + layout.dims, max(layout.h_room, layout.dims))),
        np.zeros(layout.atom_room, dtype=np.int64),
    )


def runs_of_column(layout: Layout, column: int) -> tuple[int, int]:
    """The first run of a column, and how many it has."""
    if column < layout.learned:
        return column * TWO_SIDED_LOCATORS, TWO_SIDED_LOCATORS
    if column == layout.learned:
        return layout.run_learned, ONE_SIDED_LOCATORS
    if column >= layout.level:
        return runs_of_column(layout, column - layout.level)
    if column < layout.hidden:
        return layout.run_spikes + column - layout.spikes, 1
    return layout.run_hidden, ONE_SIDED_LOCATORS


class Cursor:
    """Hands out neighbouring sections of a row, and adds up their bytes by part."""

    def __init__(self, entry_bytes: int, parts: dict[str, int]) -> None:
        self._bytes = entry_bytes
        self._parts = parts
        self.here = 0

    def take(self, size: int, part: str) -> int:
        """The start of a section of `size` entries."""
        start = self.here
        self.here += size
        self._parts[part] = self._parts.get(part, 0) + self._bytes * size
        return start

    def take_singles(self, size: int, part: str) -> int:
        """The start of a section of `size` entries of half the size; `singles` gives its view."""
        return self.take((size + 1) // 2, part)
