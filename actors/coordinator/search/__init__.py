"""The search over one task: tree, leaderboard, policies, strategies, windows."""
