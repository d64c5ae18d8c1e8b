from chairlift.lab.studies.folder import Column, Verdict, new_record, table
from chairlift.lab.studies.text import study_lines, table_lines


def test_numbers_stand_to_the_right_and_words_to_the_left() -> None:
    """Under headings with their units; nothing is a dash."""
    one = table("t", "A table.", (Column("policy"), Column("rate", "tokens/s")), [("static", 71.25), ("none", None)])

    assert list(table_lines(one)) == [
        "A table.",
        "policy  rate, tokens/s",
        "static            71.2",
        "none                 -",
    ]


def test_curves_stand_side_by_side() -> None:
    """A long table of x, series and y is one column for each series."""
    columns = (Column("policy"), Column("place"), Column("end", "s"))
    rows = [("static", 1, 2.0), ("static", 2, 2.0), ("continuous", 1, 0.5)]
    one = table("t", "Ends.", columns, rows, x="place", y="end", series="policy")

    assert list(table_lines(one))[1:] == [
        "place  static, s  continuous, s",
        "    1          2            0.5",
        "    2          2              -",
    ]


def test_a_verdict_shows_what_was_seen_and_what_to_change() -> None:
    """One without a change shows none."""
    record = new_record("burst", "m", quick=False)
    record.sentences.append("Fifty came.")
    record.verdicts += [Verdict("Short.", "9 preemptions", "--num-kv-blocks", 16, 32), Verdict("Odd.", "2 of 3")]
    record.notes.append("One run.")

    assert list(study_lines(record)) == [
        "Fifty came.",
        "",
        "What to do:",
        "- Short.",
        "  seen: 9 preemptions",
        "  change: --num-kv-blocks from 16 to 32",
        "- Odd.",
        "  seen: 2 of 3",
        "",
        "Note: One run.",
    ]


def test_what_a_target_does_not_tell_takes_no_room() -> None:
    """A column without a single value is left out; one with some has dashes."""
    columns = (Column("users"), Column("busy", "share"), Column("rate", "tokens/s"))
    one = table("t", "A table.", columns, [(1, None, None), (2, None, 3.5)])

    assert list(table_lines(one))[1:] == ["users  rate, tokens/s", "    1               -", "    2             3.5"]
