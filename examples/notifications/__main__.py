"""``python -m examples.notifications``."""

from __future__ import annotations

from pathlib import Path

import click

from examples.notifications.application import Application
from examples.notifications.site import Site
from queuey.clock import SystemClock
from queuey.errors import ConfigurationError
from queuey.security.dev_issuer import DevIssuer

PORT = 8000


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--port", default=PORT, show_default=True, help="Where the page is served.")
@click.option(
    "--issuer", type=click.Path(path_type=Path), default="issuer", show_default=True, help="Of 'queuey token issuer'."
)
@click.option("--url", envvar="QUEUEY_URL", default="http://127.0.0.1:5000", show_default=True, show_envvar=True)
@click.option("--application", envvar="QUEUEY_APPLICATION", default="demo", show_default=True, show_envvar=True)
@click.option("--key", envvar="QUEUEY_KEY", required=True, show_envvar=True, help="The application's key.")
def main(port: int, issuer: Path, url: str, application: str, key: str) -> None:
    """A page of notifications, to try out. Everybody may sign in as anybody."""
    try:
        vouching = DevIssuer.open(issuer, SystemClock())
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
    with Site(port, Application(url, application, key, vouching)) as site:
        click.echo(f"Open {site.origin} in two browsers. Queuey must have {site.origin} in [server] cors_origins.")
        try:
            site.serve_forever()
        except KeyboardInterrupt:
            click.echo()


if __name__ == "__main__":
    main(prog_name="python -m examples.notifications")
