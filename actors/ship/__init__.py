"""Packages of winners: needed at their users, torch and nothing of this project."""
