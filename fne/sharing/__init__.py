"""What a team shares: objects on a remote, and a cache and a scratch folder on one machine."""
