"""`python -m entracte_server.app.cli`."""

from entracte_server.app.cli import main

main(prog_name="entracte")
