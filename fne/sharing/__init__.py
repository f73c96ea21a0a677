"""What a team shares: objects on a remote, a cache and a scratch folder on one machine."""
