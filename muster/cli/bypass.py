"""`muster bypass`: let everything go that Muster holds, with the user's kubectl alone and no Muster pod alive.

In: a scope, the user's kubeconfig. Out: requests, a line for each; one JSON object, last on stdout and in an Event: who let
what go, and what had to stay.

Invariants: nothing is sent before the user has agreed, and nothing at all on trial. It can be stopped anywhere and run again.
One object that cannot be changed, or one request without an answer, does not keep the others from being let go. Nobody is
promised a GPU: pods that are let go compete for what the nodes advertise.

Not here: what is Muster's (bypassplan.py).
"""

import collections
import concurrent.futures
import dataclasses
import datetime
import email.utils
import json
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from muster.cli import bypassplan, kubeproxy
from muster.cli.bypassplan import Scope, Step
from muster.cli.connection import Exit
from muster.cli.kubeproxy import KubeProxy, Refused, Request
from muster.cli.noanswer import NoAnswer

AT_ONCE = 16
"""Requests on their way; the API server's own limit for one flow is not far above."""
PASSES = 10
"""A policy that was deleted still counts for a moment, and what is resumed makes new pods."""
PAUSE_SECONDS = 1.0
TRIES = 3
"""Of a read that gets no answer: an API server that starts anew is back within seconds, and what is unread stays held."""
_NOT_FOUND = 404
_SHOWN = 20
"""Steps named before the question; --dry-run names all."""
Say = Callable[[str], None]
_Answer = TypeVar("_Answer")
_LEASE = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/muster-admitter"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done at one moment."""

    steps: tuple[Step, ...]
    notes: tuple[str, ...]
    unread: dict[str, str]
    """Path -> why it could not be listed: what is there stays."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a bypass has come to."""

    done: dict[str, int]
    """Kind of object -> how many."""
    left: dict[str, str]
    """Object -> why it had to stay."""
    notes: tuple[str, ...]


@click.command()
@click.argument("target", metavar="all|namespace/NAMESPACE|gang/NAMESPACE/NAME")
@click.option("--dry-run", is_flag=True, help="say what would be done, and do nothing")
@click.option("--yes", is_flag=True, help="do not ask")
@click.option("--json", "as_json", is_flag=True, help="print nothing but the JSON object")
@click.option("--kubeconfig", default=None, help="as kubectl's")
@click.option("--context", default=None, help="as kubectl's")
@click.option("--muster-namespace", default="muster-system", show_default=True, help="where the admitter would run")
def command(
    target: str,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    kubeconfig: str | None,
    context: str | None,
    muster_namespace: str,
) -> None:
    """Let go what Muster holds, without Muster: gates, suspensions and, for `all`, taints and what puts the gate on."""
    scope = bypassplan.scope_of(target)
    if scope is None:
        click.echo(f"muster: TARGET: {target!r} is none of all, namespace/NAMESPACE, gang/NAMESPACE/NAME", err=True)
        sys.exit(Exit.BAD_INPUT)
    given = {"--kubeconfig": kubeconfig, "--context": context}
    words = [word for flag, value in given.items() if value is not None for word in (flag, value)]

    def say(text: str) -> None:
        if not as_json:
            click.echo(text)

    try:
        with kubeproxy.start(words) as proxy:
            sys.exit(_bypass(proxy, scope, say, is_trial=dry_run, is_sure=yes, muster_namespace=muster_namespace))
    except NoAnswer as error:
        click.echo(f"muster: no answer from the cluster: {error}", err=True)
        sys.exit(Exit.NO_ANSWER)


def _bypass(
    proxy: KubeProxy,
    scope: Scope,
    say: Say,
    *,
    is_trial: bool,
    is_sure: bool,
    muster_namespace: str,
) -> Exit:
    # Nothing has been sent yet: that the API server is out of reach is said before anything else.
    _retried(proxy.date)
    plan = _plan(proxy, scope)
    for step in plan.steps if is_trial else plan.steps[:_SHOWN]:
        say(f"{'would ' if is_trial else ''}{step.text}: {step.about}")
    if not is_trial and len(plan.steps) > _SHOWN:
        say(f"and {len(plan.steps) - _SHOWN} more; --dry-run names all")
    leader = _leader(proxy, muster_namespace)
    warning = f"{leader} leads and may hold and taint again: stop the admitter first if it must not"
    notes = (*plan.notes, *((warning,) if leader else ()))
    for note in notes:
        say(f"note: {note}")
    result = Result(done={}, left=plan.unread, notes=notes)
    user = _user(proxy)
    if plan.steps and not is_trial:
        if not is_sure and not _is_agreed(scope, len(plan.steps)):
            return Exit.BAD_INPUT
        _log(proxy, scope, "BypassBegan", f"{user} lets {scope} go: {len(plan.steps)} steps", say)
        result = _carry_out(proxy, scope, plan, say)
        counts = ", ".join(f"{count} {kind}" for kind, count in result.done.items()) or "nothing"
        _log(proxy, scope, "BypassEnded", f"{user} let {scope} go: {counts}; left: {len(result.left)}", say)
    record = {
        "at": _time(proxy).isoformat(),
        "kind": "bypass",
        "scope": str(scope),
        "actor": user,
        "dry_run": is_trial,
        "planned": len(plan.steps),
        **dataclasses.asdict(result),
    }
    click.echo(json.dumps(record, sort_keys=True))
    return Exit.SOMETHING if result.left or (is_trial and plan.steps) else Exit.FINE


def _is_agreed(scope: Scope, count: int) -> bool:
    if not sys.stdin.isatty():
        click.echo("muster: --yes: is required where nobody can be asked", err=True)
        return False
    return click.confirm(f"Let {scope} go ({count} steps)? No GPU is promised to these pods", default=False, err=True)


def _carry_out(proxy: KubeProxy, scope: Scope, plan: Plan, say: Say) -> Result:
    """Do the steps, and what turns up after them, until nothing is left or only what fails twice."""
    done: collections.Counter[str] = collections.Counter()
    stuck = False
    for _ in range(PASSES):
        failed: dict[str, str] = {}
        # What makes pods held goes first, or what is made meanwhile is held again.
        for is_stop in (True, False):
            steps = [step for step in plan.steps if (step.request.method == "DELETE") is is_stop]
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                for step, problem in zip(steps, pool.map(lambda step: _try(proxy, step), steps), strict=True):
                    say(f"{step.about}: {problem or 'done'}")
                    if problem:
                        failed[step.about] = problem
                    else:
                        done[step.about.partition(" ")[0]] += 1
        time.sleep(PAUSE_SECONDS)
        plan = _plan(proxy, scope)
        was_stuck, stuck = stuck, all(step.about in failed for step in plan.steps)
        if (not plan.steps and not plan.unread) or (stuck and was_stuck):
            break
    for note in plan.notes:
        say(f"note: {note}")
    left = {step.about: failed.get(step.about, "turned up at the last") for step in plan.steps}
    return Result(done=dict(sorted(done.items())), left=plan.unread | left, notes=plan.notes)


def _try(proxy: KubeProxy, step: Step) -> str:
    """Carry out a step; return what is wrong, or nothing."""
    try:
        proxy.send(step.request)
    except Refused as refused:
        # Gone meanwhile, or made anew under its name: nothing of ours is on it, or the next pass sees it.
        return "" if refused.status == _NOT_FOUND else str(refused)
    except NoAnswer as error:
        # Whether it was done shows in the next pass, which sends it again if it was not.
        return f"no answer: {error}"
    return ""


def _retried(read: Callable[[], _Answer]) -> _Answer:
    """Return what a read answers, at the last try too: NoAnswer."""
    for _ in range(TRIES - 1):
        try:
            return read()
        except NoAnswer:
            time.sleep(PAUSE_SECONDS)
    return read()


def _plan(proxy: KubeProxy, scope: Scope) -> Plan:
    """Return what is to be done now."""
    unread: dict[str, str] = {}

    def read(path: str, **parameters: str) -> list[dict[str, Any]]:
        try:
            return _retried(lambda: list(proxy.list(path, **parameters)))
        except Refused as refused:
            # 404: this cluster has no such kind.
            if refused.status != _NOT_FOUND:
                unread[path] = f"cannot be listed: {refused}"
        except NoAnswer as error:
            unread[path] = f"cannot be listed: no answer: {error}"
        return []

    inside = f"/namespaces/{scope.namespace}" if scope.namespace else ""
    steps: list[Step] = []
    notes: list[str] = []
    if not scope.namespace:
        for path in bypassplan.PUTS_GATES_ON:
            steps += bypassplan.disabled(path, read(path))
    for kind, (group, plural) in bypassplan.SUSPENDABLE.items():
        objects = read(f"{group}{inside}/{plural}")
        steps += bypassplan.resumed(kind, objects, scope)
        notes += bypassplan.still_gated(kind, objects, scope)
    pending = read(f"/api/v1{inside}/pods", fieldSelector="status.phase=Pending")
    steps += bypassplan.ungated(pending, scope)
    notes += bypassplan.pinned(pending, scope)
    if not scope.namespace:
        nodes = read("/api/v1/nodes")
        steps += bypassplan.untainted(nodes)
        steps += bypassplan.unkept(nodes)
    else:
        notes.append("new pods are still held as before: only `muster bypass all` stops that")
    return Plan(steps=tuple(steps), notes=tuple(notes), unread=unread)


def _leader(proxy: KubeProxy, namespace: str) -> str:
    """Return who leads at this moment, by the API server's clock; empty: nobody that we know of."""
    try:
        spec = proxy.get(_LEASE.format(namespace)).get("spec") or {}
        now = _time(proxy)
        renewed = datetime.datetime.fromisoformat(str(spec["renewTime"]))
        is_alive = (now - renewed).total_seconds() <= float(spec["leaseDurationSeconds"])
    except (Refused, NoAnswer, KeyError, ValueError, TypeError):
        return ""
    return str(spec.get("holderIdentity") or "").partition("_")[0] if is_alive else ""


def _user(proxy: KubeProxy) -> str:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    try:
        answer = proxy.send(Request(method="POST", path=path, body=review))
        return str(answer["status"]["userInfo"]["username"])
    except (Refused, NoAnswer, KeyError, TypeError):
        return "somebody"


def _time(proxy: KubeProxy) -> datetime.datetime:
    """Return the API server's time: this machine's clock may be off."""
    return email.utils.parsedate_to_datetime(proxy.date())


def _log(proxy: KubeProxy, scope: Scope, reason: str, text: str, say: Say) -> None:
    """Write an Event; without the right to, it is said here only."""
    now = _time(proxy)
    namespace = scope.namespace or "default"
    about = {"apiVersion": "v1", "kind": "Namespace", "name": namespace, "namespace": namespace}
    if scope.gang:
        about = {"apiVersion": "muster.dev/v1", "kind": "Gang", "name": scope.gang, "namespace": namespace}
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": "muster-bypass-", "namespace": namespace},
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.000001Z"),
        "reportingController": "muster.dev/bypass",
        "reportingInstance": "muster",
        "action": "Bypass",
        "reason": reason,
        "note": text[:1024],
        "type": "Warning",
        "regarding": about,
    }
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    try:
        proxy.send(Request(method="POST", path=path, body=event))
    except (Refused, NoAnswer) as error:
        say(f"note: no Event could be written: {error}")
