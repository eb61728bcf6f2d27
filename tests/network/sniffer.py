"""A program that writes every frame on one network interface to standard output."""

from __future__ import annotations

import socket
import sys

ETH_P_ALL = 3

wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
wire.bind((sys.argv[1], 0))
sys.stdout.buffer.write(b"ready\n")
sys.stdout.buffer.flush()
while True:
    sys.stdout.buffer.write(wire.recv(65536))
    sys.stdout.buffer.flush()
