"""Make daemonset/monitoring/prometheusrule.yaml from alerts.yaml, the one source of the alert rules.

Out: the Prometheus operator's object around the same groups. `--check` compares instead of writing; `--runbooks PLACE`
prints the plain rules with another place before each runbook's name, for those who keep the pages elsewhere.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import yaml

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "daemonset" / "monitoring"
SOURCE, OBJECT = FOLDER / "alerts.yaml", FOLDER / "prometheusrule.yaml"

HEAD = "# Made from alerts.yaml by `make alerts`; change it there.\n"


def groups() -> list[dict[str, Any]]:
    """Return the groups of the source."""
    found: list[dict[str, Any]] = yaml.safe_load(SOURCE.read_text())["groups"]
    return found


def alerts() -> Iterator[dict[str, Any]]:
    """Yield every alert rule."""
    for group in groups():
        yield from group["rules"]


def prometheus_rule() -> str:
    """Return the operator's object."""
    body = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "muster", "labels": {"app.kubernetes.io/name": "muster"}},
        "spec": {"groups": groups()},
    }
    return HEAD + _dump(body)


def with_runbooks(place: str) -> str:
    """Return the plain rules with the runbooks at another place."""
    found = groups()
    for group in found:
        for rule in group["rules"]:
            page = rule["annotations"]["runbook_url"].rpartition("/")[2]
            rule["annotations"]["runbook_url"] = f"{place.rstrip('/')}/{page}"
    return _dump({"groups": found})


def _dump(body: Any) -> str:
    text: str = yaml.dump(body, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    return text


class _Dumper(yaml.SafeDumper):
    """Writes an expression as people write it: a block of lines."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make alerts", description="Make prometheusrule.yaml from alerts.yaml.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--runbooks", metavar="PLACE", help="print the plain rules with their runbooks under PLACE")
    given = parser.parse_args(arguments)
    if given.runbooks is not None:
        print(with_runbooks(given.runbooks), end="")
        return 0
    if not given.check:
        OBJECT.write_text(prometheus_rule())
        return 0
    if OBJECT.exists() and OBJECT.read_text() == prometheus_rule():
        return 0
    print("daemonset/monitoring/prometheusrule.yaml is not what alerts.yaml says: run `make alerts`")
    return 1


if __name__ == "__main__":
    sys.exit(main())
