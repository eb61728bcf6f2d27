"""What crosses a wire: values, messages, codec, transport, settings.

Every process imports this room and it imports none of them: msgspec and zmq only.
"""
