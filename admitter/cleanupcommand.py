"""`muster-admitter cleanup`: take away all that Muster put on the cluster's Nodes, with the rights of a kubeconfig.

Exit status: 0 all is gone (or there was nothing), 1 something had to stay, 2 a setting does not fit, 3 no answer from the
API server. What was done stands on stdout, one line each, a summary last.
"""

import asyncio
import os
import pathlib
import sys

import click

from admitter.publish import cleanup
from admitter.sources import apiclient
from admitter.sources.apiclient import Api
from muster import settings
from muster.clock import SystemClock

DEFAULT = "~/.kube/config"


@click.command()
@click.option("--kubeconfig", default=None, help=f"file to connect with [KUBECONFIG; default {DEFAULT}]")
@click.option("--dry-run", is_flag=True, help="say what would be removed, and remove nothing")
def command(kubeconfig: str | None, *, dry_run: bool) -> None:
    """Remove Muster's conditions and taints from every Node. Stop the admitter first."""
    path = pathlib.Path(kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT).expanduser()
    try:
        api = apiclient.from_kubeconfig(path)
    except settings.InvalidSettings as error:
        for problem in error.problems:
            click.echo(f"muster-admitter: {problem}", err=True)
        sys.exit(2)
    sys.exit(asyncio.run(_clean(api, is_trial=dry_run)))


async def _clean(api: Api, *, is_trial: bool) -> int:
    touched: set[str] = set()
    left = 0
    client = api.client(seconds=apiclient.LIST_SECONDS)
    try:
        async for done in cleanup.clean(client, SystemClock().utc, is_trial=is_trial):
            click.echo(f"node {done.node}: {done.text}")
            touched.add(done.node)
            left += done.is_left
    except apiclient.Failed as error:
        click.echo(f"muster-admitter: {api.server}: {error}", err=True)
        return 3 if apiclient.refusal(error) == 0 else 1
    finally:
        await client.close()
    click.echo(f"cleanup: {len(touched)} nodes, {left} left alone")
    return 1 if left else 0
