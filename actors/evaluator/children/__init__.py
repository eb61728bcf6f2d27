"""What runs in child processes: these import torch, or candidates."""
