from chairlift.lab.loads.traces.trace import NONE, Trace, TraceBuilder, TraceRow


def build(*rows: TraceRow, block_tokens: int = 0) -> Trace:
    """A trace of rows."""
    builder = TraceBuilder()
    for row in rows:
        builder.add(row)
    return builder.build(name="x", trace_format="own", sha256="", block_tokens=block_tokens)


def test_rows_are_put_in_order_of_time_and_counted_from_the_first() -> None:
    """Rows of equal time keep their order."""
    trace = build(TraceRow(30, 1, 1), TraceRow(10, 2, 1), TraceRow(30, 3, 1))

    assert list(trace.times) == [0, 20, 20]
    assert list(trace.prompt_tokens) == [2, 1, 3]


def test_rows_without_tokens_are_left_out_and_counted() -> None:
    """By what they lack."""
    trace = build(TraceRow(0, 1, 1), TraceRow(1, 5, 0), TraceRow(2, 0, 5), TraceRow(3, 7, 0))

    assert len(trace) == 1
    assert trace.left_out == {"failed: 0 output tokens": 2, "0 prompt tokens": 1}


def test_named_sessions_are_chains_in_order_of_time() -> None:
    """Each row's parent is the last of its session; rows without a session have none."""
    trace = build(
        TraceRow(0, 1, 1, session="a"),
        TraceRow(1, 1, 1, session="b"),
        TraceRow(2, 1, 1),
        TraceRow(4, 1, 1, session="a"),
        TraceRow(3, 1, 1, session="a"),
    )

    assert list(trace.parents) == [NONE, NONE, NONE, 0, 3]
    assert list(trace.sessions) == [0, 1, NONE, 0, 0]
    assert list(trace.turns) == [0, 0, 0, 1, 2]


def test_parents_make_trees_and_an_unknown_one_makes_a_root() -> None:
    """Two rows may continue the same one; a parent from before the recording begins a session."""
    trace = build(
        TraceRow(0, 1, 1, key=10),
        TraceRow(1, 1, 1, key=11, parent=10),
        TraceRow(2, 1, 1, key=12, parent=10),
        TraceRow(3, 1, 1, key=13, parent=99),
        TraceRow(4, 1, 1, key=14, parent=12),
    )

    assert list(trace.parents) == [NONE, 0, 0, NONE, 2]
    assert list(trace.sessions) == [0, 0, 0, 1, 0]
    assert list(trace.turns) == [0, 1, 1, 0, 2]


def test_blocks_are_kept_row_by_row() -> None:
    """Ragged, empty lists included; and none at all where no row has any."""
    rows = TraceRow(0, 9, 1, blocks=(1, 2)), TraceRow(1, 9, 1), TraceRow(2, 9, 1, blocks=(1, 3, 4))
    blocks = build(*rows, block_tokens=4).blocks

    assert blocks is not None
    assert [list(blocks.of(row)) for row in range(3)] == [[1, 2], [], [1, 3, 4]]
    assert build(TraceRow(0, 9, 1), block_tokens=4).blocks is None


def test_what_a_row_says_for_itself_is_kept_by_row() -> None:
    """Priority 0 is said too."""
    trace = build(TraceRow(0, 1, 1), TraceRow(1, 1, 1, priority=0, deadline=5, kind="x"))

    assert (trace.priorities, trace.deadlines, trace.kinds) == ({1: 0}, {1: 5}, {1: "x"})
