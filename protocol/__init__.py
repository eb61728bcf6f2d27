"""The values, messages and files that processes exchange: codec, transport, settings, tickets.

Every process imports this package; it imports only msgspec and zmq.
"""
