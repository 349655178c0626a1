"""Entry point of the command line."""


def main() -> None:
    """Run the command line."""
    raise SystemExit("error: the command line is being built")
