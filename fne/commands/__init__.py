"""The work behind the `fne` command, one file per subcommand."""
