"""The oracle of bench-failover: it must see what it is there to see."""

from hack.bench.failover import Oracle, Seen


def seen(oracle, uid, gang="g", node="", *, let_go=False, over=False, reason=""):
    oracle.see(uid, Seen(gang=gang, node=node, is_let_go=let_go, is_over=over), reason=reason, now=1.0)


def an_oracle(**sizes):
    oracle = Oracle(2)
    oracle.sizes.update(sizes or {"g": 2})
    return oracle


def run_through(oracle, uid, node, gang="g"):
    seen(oracle, uid, gang)
    seen(oracle, uid, gang, let_go=True)
    seen(oracle, uid, gang, node, let_go=True)
    seen(oracle, uid, gang, node, let_go=True, over=True)


def test_a_gang_that_ran_whole_is_neither_lost_nor_double():
    oracle = an_oracle()
    for uid in ("a", "b"):
        run_through(oracle, uid, "n1")
        seen(oracle, uid, node="n1", let_go=True, over=True)
        oracle.gone(uid)
    assert (oracle.double, oracle.lost(), len(oracle.let_go)) == ([], [], 2)


def test_more_pods_on_a_node_than_it_has_is_a_double_admission():
    oracle = an_oracle(g=2, h=1)
    seen(oracle, "a", node="n1", let_go=True)
    seen(oracle, "b", node="n1", let_go=True)
    assert not oracle.double
    seen(oracle, "c", "h", node="n1", let_go=True)
    assert oracle.double == ["n1: 3 of 2"]


def test_a_pod_whose_place_was_given_back_is_not_counted_any_more():
    oracle = an_oracle(g=2, h=1)
    seen(oracle, "a", node="n1", let_go=True)
    seen(oracle, "b", node="n1", let_go=True)
    seen(oracle, "a", node="n1", let_go=True, over=True)
    seen(oracle, "c", "h", node="n1", let_go=True)
    assert not oracle.double


def test_a_pod_that_found_no_device_is_a_double_admission_and_has_not_run():
    oracle = an_oracle(g=1)
    seen(oracle, "a", node="n1", let_go=True)
    seen(oracle, "a", node="n1", let_go=True, over=True, reason="UnexpectedAdmissionError")
    assert oracle.double == ["g on n1: UnexpectedAdmissionError"]
    assert oracle.lost() == ["g: 0 of 1 pods ran"]


def test_half_a_gang_is_a_lost_gang():
    oracle = an_oracle()
    run_through(oracle, "a", "n1")
    seen(oracle, "b")
    assert oracle.lost() == ["g: 1 of 2 pods ran"]
