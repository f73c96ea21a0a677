"""What everything else stands on: errors, parameters, the command line."""
