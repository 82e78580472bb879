"""palisade completion."""

from __future__ import annotations

import click

VARIABLE = "_PALISADE_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a SHELL.

    \b
    bash:  source <(palisade completion bash)          in ~/.bashrc
    zsh:   source <(palisade completion zsh)           in ~/.zshrc, after compinit
    fish:  palisade completion fish > ~/.config/fish/completions/palisade.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}")
    root = context.find_root().command
    script = kind(root, {}, "palisade", VARIABLE)
    # Click's script for fish cuts descriptions at their first comma.
    template = script.source_template.replace('(string split "," $completion)', '(string split -m 1 "," $completion)')
    click.echo(template % script.source_vars())
