"""Runs in child processes, which import torch and run the task's or a candidate's code."""
