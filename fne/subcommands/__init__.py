"""The subcommands of `fne`: a file each with its arguments, its help and what is printed.

Their work is done by `fne.commands`, imported when a subcommand is called: the help shall not
wait for torch, nor one subcommand for what only another one needs.
"""
