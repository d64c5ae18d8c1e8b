from benchmarks._loads import HIGHEST_ID, LOADS, LOWEST_ID


def test_the_loads_are_what_their_table_says() -> None:
    """Requests, prompt tokens and answer tokens of W1 to W4."""
    sizes = {
        name: (len(jobs), {len(job.prompt) for job in jobs}, sorted({job.answer for job in jobs}))
        for name, make in LOADS.items()
        if (jobs := make())
    }

    assert sizes["W1"] == (1, {128}, [128])
    assert sizes["W3"] == (32, {128}, [64])
    assert sizes["W4"] == (1, {1024}, [1])
    requests, prompts, answers = sizes["W2"]
    assert (requests, answers) == (32, [20, 200])
    assert min(prompts) >= 16
    assert max(prompts) <= 256
    assert sum(job.answer for job in LOADS["W2"]()) == 1360


def test_a_load_is_the_same_whenever_it_is_made() -> None:
    """Engines in different processes and environments compute the same tokens."""
    for make in LOADS.values():
        assert make() == make()


def test_prompts_share_no_beginning_and_hold_ordinary_tokens() -> None:
    """No prefix cache could help, and no control token could end an answer."""
    for make in LOADS.values():
        jobs = make()
        assert len({job.prompt[:2] for job in jobs}) == len(jobs)
        assert all(LOWEST_ID <= token < HIGHEST_ID for job in jobs for token in job.prompt)
