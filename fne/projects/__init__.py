"""Projects without the library's code: new ones, and those that move to another version of it."""
